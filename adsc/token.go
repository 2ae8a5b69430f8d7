package adsc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
)

// ErrPlainToken says that a token is to be shown on a connection that is not secured.
var ErrPlainToken = errors.New("token file: a token must not be sent in plaintext")

// tokenFile is a file with a bearer token, read anew for each stream: tokens are short-lived and replaced in place.
type tokenFile string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (f tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("tokenFile: %w", err)
	}
	token = bytes.TrimSpace(token)
	if len(token) == 0 {
		return nil, fmt.Errorf("tokenFile: %s is empty", string(f))
	}
	return map[string]string{"authorization": "Bearer " + string(token)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenFile) RequireTransportSecurity() bool { return true }
