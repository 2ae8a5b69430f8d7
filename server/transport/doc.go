// Package transport accepts the connections of clients, plaintext or TLS, and bounds what they cost.
package transport
