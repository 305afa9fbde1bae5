# docker build -t cutout . && docker run --rm -p 9090:9090 cutout serve --host 0.0.0.0 --token SECRET
# The program is linked statically, so that the picture holds nothing else: no shell, no user but a number.
FROM rust:1.95-alpine3.22 AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package cutout-cli \
    && strip target/release/cutout \
    && mkdir -p /empty

FROM scratch
COPY --from=build /source/target/release/cutout /cutout
COPY --from=build --chown=65532:65532 /empty /tmp
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
WORKDIR /data
ENV HOME=/data
EXPOSE 9090
ENTRYPOINT ["/cutout"]
CMD ["--help"]
