package dial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/hashicorp/consul/api"
)

// Consul does not tell those who send no token that it hides something from them. To them, what they may not see and what
// does not exist look the same. So we have to know whether a token was sent, and to ask for the rights of strangers.

type sentKey struct{}

// Sent is what a request was sent with.
type Sent struct{ anonymous atomic.Bool }

// Anonymous reports whether it was sent without a token.
func (s *Sent) Anonymous() bool { return s.anonymous.Load() }

// Watch returns a context for one request, and what tells afterwards how it was sent.
func Watch(ctx context.Context) (context.Context, *Sent) {
	s := &Sent{}
	return context.WithValue(ctx, sentKey{}, s), s
}

func noteSent(req *http.Request) {
	if s, ok := req.Context().Value(sentKey{}).(*Sent); ok {
		s.anonymous.Store(req.Header.Get(tokenHeader) == "")
	}
}

// nobody stands for a token in requests that are to be sent without one, whatever token there is at the moment.
const nobody = "no-token"

// Right is the right to read something.
type Right struct {
	Resource string // "service", "node" or "key"
	Name     string // or nothing, for one of any name
}

// MaxRights is how many rights Consul takes at once.
const MaxRights = 64

// Who is somebody whose rights can be asked for.
type Who bool

// Those whose rights can be asked for.
const (
	Ourselves Who = false // with the token of the moment
	Strangers Who = true  // without one
)

// Expressible reports whether a path can be asked for. Consul takes any characters in the names of services and keys, and refuses
// or redirects requests with some of them (observed in 1.22).
func Expressible(p string) bool {
	return path.Clean(p) == strings.TrimSuffix(p, "/") && !strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) })
}

// MayRead reports whether somebody has all of rights in that datacenter, namespace and partition, as is the case where Consul
// has no ACLs.
func (c *Client) MayRead(ctx context.Context, datacenter, namespace, partition string, who Who, rights []Right) (bool, error) {
	for len(rights) > 0 {
		n := min(len(rights), MaxRights)
		may, err := c.authorize(ctx, datacenter, namespace, partition, who, rights[:n])
		if err != nil {
			return c.withoutACLs(ctx, err)
		}
		if !may {
			return false, nil
		}
		rights = rights[n:]
	}
	return true, nil
}

// withoutACLs reports whether Consul has no ACLs. It is asked after an err that may be the answer of a proxy that lets only
// some questions through, or of an old Consul, and that is returned if it has.
func (c *Client) withoutACLs(ctx context.Context, err error) (bool, error) {
	if aclsDisabled(err) {
		return true, nil
	}
	var status api.StatusError
	if !errors.As(err, &status) || status.Code < 400 || status.Code > 499 || status.Code == http.StatusTooManyRequests {
		return false, err
	}
	_, _, other := c.ACL().TokenReadSelf((&api.QueryOptions{Token: nobody}).WithContext(ctx))
	if aclsDisabled(other) {
		return true, nil
	}
	return false, err
}

func aclsDisabled(err error) bool {
	var status api.StatusError
	return errors.As(err, &status) && status.Code == http.StatusUnauthorized && strings.Contains(status.Body, "ACL support disabled")
}

// authorize asks what Consul's own UI asks to know what it can offer. The official client has no method for it.
func (c *Client) authorize(ctx context.Context, datacenter, namespace, partition string, who Who, rights []Right) (bool, error) {
	type question struct {
		Resource, Access, Segment string
		Namespace, Partition      string `json:",omitempty"`
	}
	questions := make([]question, len(rights))
	for i, r := range rights {
		questions[i] = question{r.Resource, "read", r.Name, cmp.Or(namespace, c.namespace), cmp.Or(partition, c.partition)}
	}
	body, err := json.Marshal(questions)
	if err != nil {
		return false, err
	}
	where := *c.root
	where.Path += "/v1/internal/acl/authorize"
	if dc := cmp.Or(datacenter, c.Address.dc); dc != "" {
		where.RawQuery = url.Values{"dc": {dc}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where.String(), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set(tokenHeader, placeholder)
	if who == Strangers {
		req.Header.Set(tokenHeader, nobody)
	}
	req.Header.Set("Content-Type", "application/json")
	if a := basicAuth(); a != nil {
		req.SetBasicAuth(a.Username, a.Password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, api.StatusError{Code: resp.StatusCode, Body: strings.TrimSpace(string(data))}
	}
	var answers []struct{ Allow bool }
	if err := json.Unmarshal(data, &answers); err != nil || len(answers) != len(rights) {
		return false, fmt.Errorf("%d answers about %d rights: %w", len(answers), len(rights), cmp.Or(err, errNotConsul))
	}
	for _, a := range answers {
		if !a.Allow {
			return false, nil
		}
	}
	return true, nil
}
