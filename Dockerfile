# The command line in an image: docker run --rm -v "$PWD:/models" IMAGE ci /models --target cpu-avx2
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY layoutopt layoutopt
COPY passes passes
COPY cost_models cost_models
RUN python -m venv /opt/layoutopt && /opt/layoutopt/bin/pip install --no-cache-dir .

FROM python:3.11-slim
COPY --from=build /opt/layoutopt /opt/layoutopt
RUN useradd --create-home --uid 10001 layoutopt
ENV PATH=/opt/layoutopt/bin:$PATH
USER layoutopt
WORKDIR /models
ENTRYPOINT ["layoutopt"]
CMD ["--help"]
