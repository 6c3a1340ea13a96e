# The tracking server of the compose file: MLflow with a driver for PostgreSQL.
FROM python:3.11.13-slim-bookworm
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN pip install mlflow==3.17.2 psycopg2-binary==2.9.13 \
    && useradd --create-home --uid 10001 mlflow \
    && install --directory --owner mlflow /artifacts
COPY docker/mlflow-server.sh /usr/local/bin/mlflow-server
USER 10001
VOLUME /artifacts
EXPOSE 5000
HEALTHCHECK --interval=10s --timeout=5s --start-period=40s --retries=6 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["sh", "/usr/local/bin/mlflow-server"]
