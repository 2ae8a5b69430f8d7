package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// login keeps the token of a user, which is had over HTTP and lasts for some hours.
type login struct {
	address Address
	config  TLS

	mu    sync.Mutex
	token string
	until time.Time
}

// The ways to log in: of 3.x and of 2.x.
var loginPaths = []string{"/v3/auth/user/login", "/v1/auth/login"}

// noStatus is what the library says of the status 0, with which 2.3.2 refuses a user.
const noStatus = `malformed HTTP status code "0"`

// loginTimeout is for one request.
const loginTimeout = 5 * time.Second

// get returns a token for requests to server, or nothing if no user is configured.
func (l *login) get(ctx context.Context, server string) (string, error) {
	if l.address.User == "" {
		return "", nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != "" && time.Now().Before(l.until) {
		return l.token, nil
	}
	var err error
	for _, path := range loginPaths {
		var token string
		var lasts time.Duration
		if token, lasts, err = l.ask(ctx, server, path); err == nil {
			l.token, l.until = token, time.Now().Add(lasts*9/10)
			return token, nil
		}
	}
	return "", err
}

// forget has the next request log in again.
func (l *login) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = ""
}

func (l *login) ask(ctx context.Context, server, path string) (token string, lasts time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if l.config != nil {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return "", 0, err
		}
		scheme = "https"
		if transport.TLSClientConfig, err = l.config(host); err != nil {
			return "", 0, err
		}
	}
	if l.address.ContextPath != "" {
		path = "/" + l.address.ContextPath + path
	}
	form := url.Values{"username": {l.address.User}, "password": {l.address.Password}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+server+path, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil && strings.Contains(err.Error(), noStatus) {
		return "", 0, fmt.Errorf("log in as %s: %w", l.address.User, ErrDenied)
	}
	if err != nil {
		return "", 0, fmt.Errorf("log in: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxInstance))
	if err != nil {
		return "", 0, fmt.Errorf("log in: %w", err)
	}
	if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized {
		return "", 0, fmt.Errorf("log in as %s: %w: %s", l.address.User, ErrDenied, response.Status)
	}
	var doc struct {
		Token string `json:"accessToken"`
		TTL   int64  `json:"tokenTtl"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Token == "" || response.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("log in as %s: %s without a token", l.address.User, response.Status)
	}
	return doc.Token, time.Duration(max(doc.TTL, 1)) * time.Second, nil
}
