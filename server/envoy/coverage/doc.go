// Package coverage declares which fields of objects have an effect on Envoys and gRPC clients: fields.yaml lists them,
// and coverage.go checks values. Packages translate and model decide what is served instead of a refused value.
package coverage
