# syntax=docker/dockerfile:1
# Two stages: the tools that install do not reach the image that runs. All roles use the same image.
FROM python:3.13-slim AS build
WORKDIR /app
COPY requirements/bootstrap.lock requirements/runtime.lock requirements/
RUN python -m venv /tools && /tools/bin/pip install --no-cache-dir --require-hashes -r requirements/bootstrap.lock
RUN python -m venv --without-pip .venv \
    && /tools/bin/uv pip sync --no-cache --python .venv/bin/python --require-hashes requirements/runtime.lock
COPY turnlog.py turnlog_main.py turnlog_packages.py ./
COPY domain domain
COPY projections projections
COPY infra infra
COPY services services
# The project runs from this directory; its entry pins its own packages (see turnlog_packages.py).
RUN echo /app > "$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/turnlog.pth" \
    && printf '#!/app/.venv/bin/python\nfrom turnlog_main import main\n\nmain()\n' > .venv/bin/turnlog \
    && chmod 0755 .venv/bin/turnlog \
    && .venv/bin/python -m compileall -q domain projections infra services turnlog.py turnlog_main.py turnlog_packages.py

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home turnlog
COPY --from=build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Users' agents are mounted or copied here: --agent module:name finds them in the working directory.
WORKDIR /agents
USER 10001
EXPOSE 8080 8090
STOPSIGNAL SIGTERM
ENTRYPOINT ["turnlog"]
CMD ["--help"]
