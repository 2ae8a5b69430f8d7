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

// login keeps the token of a user, which is had over HTTP and lasts for some hours.
type login struct {
	web

	pause time.Duration // after a login that gave no token

	mu     sync.Mutex
	pass   pass
	server string // that gave no token
	until  time.Time
}

// pass is what a request to a server has. Servers without access control give no token, and neither do those that have no way to log in:
// what is asked without one says whether one is wanted. Nacos' own clients go by that as well.
type pass struct {
	token string
	why   error // there is none, though there is a user
}

// The ways to log in: of 3.x and of 2.x.
var loginPaths = []string{"/v3/auth/user/login", "/v1/auth/login"}

// loginPause is how long it is not tried again to log in, as Nacos' own clients do it: a server may count wrong passwords.
const loginPause = 5 * time.Second

// noStatus is what the library says of the status 0, with which 2.3.2 refuses a user.
const noStatus = `malformed HTTP status code "0"`

// errPassing is said of a login that a server failed at, and says nothing of the user.
var errPassing = errors.New("the server fails")

// get returns what a request to server is to have, or nothing if no user is configured. An error is that the server cannot be asked.
func (l *login) get(ctx context.Context, server string) (pass, error) {
	if l.address.User == "" {
		return pass{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.pass.token != "" || l.server == server) && time.Now().Before(l.until) {
		return l.pass, nil
	}
	var why error
	for _, path := range loginPaths {
		token, lasts, refused, err := l.ask(ctx, server, path)
		switch {
		case err != nil && l.pass.why != nil && l.server == server: // it wanted no token so far, and has another port for what it is asked
			l.until = time.Now().Add(l.pause)
			return l.pass, nil
		case err != nil:
			return pass{}, err
		case token != "":
			l.pass, l.until = pass{token: token}, time.Now().Add(lasts*9/10)
			return l.pass, nil
		case why == nil || !errors.Is(why, ErrDenied) && !errors.Is(why, errPassing): // one way may not be there
			why = refused
		}
	}
	l.pass, l.server, l.until = pass{why: why}, server, time.Now().Add(l.pause)
	return l.pass, nil
}

// forget has the next request log in again.
func (l *login) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Time{}
}

// explain says of an error of a request that had the pass what is behind it: who was not let in for want of a token is told why there is
// none. If that is the server's fault another one is tried.
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

// ask tries to log in by one way. Without a token it says why there is none.
func (l *login) ask(ctx context.Context, server, path string) (token string, lasts time.Duration, why, err error) {
	none := func(why error) (string, time.Duration, error, error) {
		return "", 0, fmt.Errorf("log in as %s: %w", l.address.User, why), nil
	}
	status, body, err := l.web.ask(ctx, server, http.MethodPost, path, "",
		url.Values{"username": {l.address.User}, "password": {l.address.Password.Reveal()}})
	if err != nil && strings.Contains(err.Error(), noStatus) {
		return none(ErrDenied)
	}
	if err != nil {
		return "", 0, nil, fmt.Errorf("log in: %w", err)
	}
	answer := strconv.Itoa(status) + " " + http.StatusText(status)
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return none(fmt.Errorf("%w: %s", ErrDenied, answer))
	case status == http.StatusInternalServerError && l.ready(ctx, server):
		// So 3.1 answers to the wrong password of a user that it knows.
		return none(fmt.Errorf("%w: %s from a server that is ready", ErrDenied, answer))
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		return none(fmt.Errorf("%s: %w", answer, errPassing))
	}
	var doc struct {
		Token string `json:"accessToken"`
		TTL   int64  `json:"tokenTtl"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.Token == "" || status != http.StatusOK {
		return none(errors.New(answer + " without a token"))
	}
	return doc.Token, time.Duration(max(doc.TTL, 1)) * time.Second, nil, nil
}
