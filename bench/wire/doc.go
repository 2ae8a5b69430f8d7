// Package wire holds the parts of the xDS messages that a benchmark needs, and no more: it finds a response's nonce
// without decoding its resources, and it writes requests as bytes. A client that decoded its responses would cost more
// than the server under test, on the same machine.
package wire
