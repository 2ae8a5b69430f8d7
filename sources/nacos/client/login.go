package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// login keeps the token of a user, which is had over HTTP and lasts for some hours.
type login struct {
	web

	mu    sync.Mutex
	token string
	until time.Time
}

// The ways to log in: of 3.x and of 2.x.
var loginPaths = []string{"/v3/auth/user/login", "/v1/auth/login"}

// noStatus is what the library says of the status 0, with which 2.3.2 refuses a user.
const noStatus = `malformed HTTP status code "0"`

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
	status, body, err := l.web.ask(ctx, server, http.MethodPost, path, "", url.Values{"username": {l.address.User}, "password": {l.address.Password}})
	if err != nil && strings.Contains(err.Error(), noStatus) {
		return "", 0, fmt.Errorf("log in as %s: %w", l.address.User, ErrDenied)
	}
	if err != nil {
		return "", 0, fmt.Errorf("log in: %w", err)
	}
	answer := strconv.Itoa(status) + " " + http.StatusText(status)
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return "", 0, fmt.Errorf("log in as %s: %w: %s", l.address.User, ErrDenied, answer)
	case status == http.StatusInternalServerError && l.ready(ctx, server):
		// So 3.1 answers to the wrong password of a user that it knows.
		return "", 0, fmt.Errorf("log in as %s: %w: %s from a server that is ready", l.address.User, ErrDenied, answer)
	}
	var doc struct {
		Token string `json:"accessToken"`
		TTL   int64  `json:"tokenTtl"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Token == "" || status != http.StatusOK {
		return "", 0, fmt.Errorf("log in as %s: %s without a token", l.address.User, answer)
	}
	return doc.Token, time.Duration(max(doc.TTL, 1)) * time.Second, nil
}
