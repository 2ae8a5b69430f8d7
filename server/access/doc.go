// Package access decides which objects, Envoy types and services a client may read. The first access rule of the
// configuration that matches the client decides. For the client, all other objects do not exist.
package access
