"""A client of gRPC's C core for the end-to-end tests.

It dials TARGET, which is an address of xds:///, by one channel, and serves HTTP on 127.0.0.1:PORT: GET /CALLS makes so many calls, one after the
other, and answers with who answered them (the header served-by) or why they failed, and how often each, as JSON. GRPC_XDS_BOOTSTRAP names the
file with the bootstrap.

    client.py PORT TARGET
"""

import collections
import http.server
import json
import sys

import grpc


def main():
    port, target = int(sys.argv[1]), sys.argv[2]
    channel = grpc.insecure_channel(target)
    check = channel.unary_unary("/grpc.health.v1.Health/Check")  # messages are bytes: an empty one is a whole request

    def call():
        try:
            _, answered = check.with_call(b"", timeout=2)
        except grpc.RpcError as err:
            return f"{err.code().name}: {err.details()}"
        return dict(answered.initial_metadata()).get("served-by", "nobody")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answers = collections.Counter(call() for _ in range(int(self.path[1:])))
            body = json.dumps(answers).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


main()
