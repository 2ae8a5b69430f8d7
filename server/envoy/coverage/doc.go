// Package coverage declares which fields of objects have an effect on Envoys and gRPC clients.
package coverage
