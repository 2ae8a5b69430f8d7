// Package sources runs the sources of configuration. It defines the contract of a source, supervises each one, and
// protects its objects on their way into a store.
package sources
