package client

import (
	"fmt"

	"tributary/adsc"
)

// Secure returns what connections need that are as t says; nil if that is no TLS. An error begins with the key at fault.
func Secure(t *adsc.TLS) (TLS, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	if !t.Secure() {
		return nil, nil
	}
	if _, err := t.Config(""); err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	return t.Config, nil
}
