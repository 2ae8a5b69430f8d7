package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// login keeps the token of a user, which comes over HTTP and is valid for some hours.
type login struct {
	web

	pause time.Duration // after a login without a token

	mu     sync.Mutex
	pass   pass
	server string // of the last login without a token
	expiry time.Time
}

// pass has the credentials of a request. Servers without access control, or without a login, give no token: a request
// without a token shows whether one is required. Nacos' own clients do the same.
type pass struct {
	token string
	why   error // the reason why a user has no token
}

// The ways to log in: of 3.x and of 2.x.
var loginPaths = []string{"/v3/auth/user/login", "/v1/auth/login"}

// loginPause is the pause between logins, as in Nacos' own clients: a server may count wrong passwords.
const loginPause = 5 * time.Second

// noStatus is the library's error about the status 0, by which 2.3.2 refuses a user.
const noStatus = `malformed HTTP status code "0"`

// errPassing is a failure of a server at a login, independent of the user.
var errPassing = errors.New("the server fails")

// get returns the credentials of a request to server; empty without a user. An error says that the server cannot be
// asked.
func (l *login) get(ctx context.Context, server string) (pass, error) {
	if l.address.User == "" {
		return pass{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.pass.token != "" || l.server == server) && time.Now().Before(l.expiry) {
		return l.pass, nil
	}
	var reason error
	for _, path := range loginPaths {
		token, lasts, refused, err := l.ask(ctx, server, path)
		switch {
		case err != nil && l.pass.why != nil && l.server == server: // requests without a token worked so far, on another port
			l.expiry = time.Now().Add(l.pause)
			return l.pass, nil
		case err != nil:
			return pass{}, err
		case token != "":
			l.pass, l.expiry = pass{token: token}, time.Now().Add(lasts*9/10)
			return l.pass, nil
		case reason == nil || !errors.Is(reason, ErrDenied) && !errors.Is(reason, errPassing): // the server may lack one way
			reason = refused
		}
	}
	l.pass, l.server, l.expiry = pass{why: reason}, server, time.Now().Add(l.pause)
	return l.pass, nil
}

// forget makes the next request log in again.
func (l *login) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expiry = time.Time{}
}

// explain adds the reason of a missing token to the refusal of a request. If that is the server's fault, the client
// tries another server.
func (p pass) explain(err error) error {
	switch {
	case p.why == nil || !errors.Is(err, ErrDenied):
		return err
	case errors.Is(p.why, errPassing):
		return &connError{p.why}
	case errors.Is(p.why, ErrDenied):
		return p.why
	}
	return fmt.Errorf("%w (%w)", err, p.why)
}

// ask tries to log in by one way. It returns a token, or why there is none.
func (l *login) ask(ctx context.Context, server, path string) (token string, lasts time.Duration, why, err error) {
	reason := func(why error) (string, time.Duration, error, error) {
		return "", 0, fmt.Errorf("log in as %s: %w", l.address.User, why), nil
	}
	status, body, err := l.web.ask(ctx, server, http.MethodPost, path, "",
		url.Values{"username": {l.address.User}, "password": {l.address.Password.Reveal()}})
	if err != nil && strings.Contains(err.Error(), noStatus) {
		return reason(ErrDenied)
	}
	if err != nil {
		return "", 0, nil, fmt.Errorf("log in: %w", err)
	}
	answer := strconv.Itoa(status) + " " + http.StatusText(status)
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return reason(fmt.Errorf("%w: %s", ErrDenied, answer))
	case status == http.StatusInternalServerError && l.ready(ctx, server):
		// The answer of 3.1 to the wrong password of a known user.
		return reason(fmt.Errorf("%w: %s from a server that is ready", ErrDenied, answer))
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		return reason(fmt.Errorf("%s: %w", answer, errPassing))
	}
	var document struct {
		Token string `json:"accessToken"`
		TTL   int64  `json:"tokenTtl"`
	}
	if err := json.Unmarshal(body, &document); err != nil || document.Token == "" || status != http.StatusOK {
		return reason(errors.New(answer + " without a token"))
	}
	return document.Token, time.Duration(max(document.TTL, 1)) * time.Second, nil, nil
}
