#!/bin/sh
# Starts MLflow on the database that the environment names. The password is read from a file (a secret of the
# compose file) and handed over in the environment, where the process list does not show it.
set -eu
user=${DB_USER:-mlflow} host=${DB_HOST:-postgres} port=${DB_PORT:-5432} name=${DB_NAME:-mlflow}
password=$(cat "${DB_PASSWORD_FILE:-/run/secrets/db_password}")
export PGPASSWORD="$password"
export MLFLOW_BACKEND_STORE_URI="postgresql+psycopg2://$user@$host:$port/$name"
exec mlflow server \
  --artifacts-destination "${ARTIFACTS:-/artifacts}" --serve-artifacts \
  --host "${HOST:-0.0.0.0}" --port "${PORT:-5000}" --workers "${WORKERS:-2}" \
  --allowed-hosts "${ALLOWED_HOSTS:-localhost,localhost:5000,127.0.0.1,127.0.0.1:5000,mlflow,mlflow:5000}"
