// Package role has the processes of a benchmark: a server under test, and its clients. Each is driven by net/rpc over
// its standard input and output, and ends when they are closed.
package role
