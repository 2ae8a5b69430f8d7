//go:build !unix

package process

// closed calls make.
func closed(make func()) { make() }
