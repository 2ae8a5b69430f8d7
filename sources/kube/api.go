package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"tributary/internal/body"
	"tributary/sources"
)

// api speaks to an API server.
type api struct {
	client *http.Client
	base   string
}

// close ends connections that are not in use.
func (a *api) close() { utilnet.CloseIdleConnectionsFor(a.client.Transport) }

const (
	askTimeout   = 30 * time.Second
	listTimeout  = 2 * time.Minute  // of one page
	watchGrace   = 10 * time.Second // for the server to end a watch
	maxObject    = 64 << 20         // bytes of one object; etcd takes some 1.5 MiB
	maxDiscovery = 16 << 20         // bytes of what says which kinds there are
	maxError     = 64 << 10
)

// statusError is an answer that is an error, as a status of HTTP or as an event.
type statusError struct {
	code    int
	reason  string
	message string
	wait    time.Duration // as the server asks for; 0 if it does not
}

func (e *statusError) Error() string {
	if e.reason != "" {
		return fmt.Sprintf("%d %s: %s", e.code, e.reason, e.message)
	}
	return fmt.Sprintf("%d: %s", e.code, e.message)
}

// state is how a source is that gets the error.
func stateOf(err error) sources.State {
	if s, ok := errors.AsType[*statusError](err); ok && (s.code == http.StatusUnauthorized || s.code == http.StatusForbidden) {
		return sources.Denied
	}
	return sources.Unreachable
}

func isStatus(err error, code int) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && s.code == code
}

// isExpired reports whether what is behind a resource version is no longer known.
func isExpired(err error) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && (s.code == http.StatusGone || s.reason == "Expired" || s.reason == "Gone")
}

// do sends a request. The caller closes the body of the answer, whose status is 200 or 201.
func (a *api) do(ctx context.Context, method, path string, query url.Values, content io.Reader) (*http.Response, error) {
	address := a.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusCreated {
		return res, nil
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxError))
	failed := statusOf(text)
	failed.code = res.StatusCode
	if failed.message == "" {
		failed.message = http.StatusText(res.StatusCode)
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		failed.wait = time.Duration(seconds) * time.Second
	}
	return nil, failed
}

// statusOf reads an object of kind Status.
func statusOf(text []byte) *statusError {
	var s struct {
		Code            int
		Reason, Message string
		Details         struct{ RetryAfterSeconds int }
	}
	if json.Unmarshal(text, &s) != nil {
		return &statusError{}
	}
	return &statusError{s.Code, s.Reason, s.Message, time.Duration(s.Details.RetryAfterSeconds) * time.Second}
}

// exchange reads an answer that is one value.
func (a *api) exchange(ctx context.Context, method, path string, content io.Reader, to any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	res, err := a.do(ctx, method, path, nil, content)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	text, err := body.Read(res.Body, maxDiscovery)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// page is a part of a list without its items.
type page struct {
	Kind     string
	Metadata struct{ ResourceVersion, Continue string }
}

func (p page) version() uint64 {
	v, _ := strconv.ParseUint(p.Metadata.ResourceVersion, 10, 64)
	return v
}

// list reads the pages of a list, and hands each item to take. It returns the resource version, which is the same for all pages. Only if
// there is no error have all items been taken.
func (a *api) list(ctx context.Context, path, selector string, pageSize int, take func(item json.RawMessage) error) (uint64, error) {
	var version uint64
	for next, first := "", true; first || next != ""; first = false {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if selector != "" {
			query.Set("labelSelector", selector)
		}
		if next != "" {
			query.Set("continue", next)
		}
		p, err := a.page(ctx, path, query, take)
		switch {
		case err != nil:
			return 0, err
		case p.version() == 0:
			return 0, fmt.Errorf("the list has the resource version %q, want a number", p.Metadata.ResourceVersion)
		case !first && p.version() != version:
			return 0, fmt.Errorf("the pages of the list are of resource versions %d and %d", version, p.version())
		}
		version, next = p.version(), p.Metadata.Continue
	}
	return version, nil
}

// version asks for the server's present resource version.
func (a *api) version(ctx context.Context, path string) (uint64, error) {
	p, err := a.page(ctx, path, url.Values{"limit": {"1"}}, func(json.RawMessage) error { return nil })
	return p.version(), err
}

func (a *api) page(ctx context.Context, path string, query url.Values, take func(json.RawMessage) error) (p page, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	res, err := a.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return p, err
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	if p, err = decodePage(&bounded{from: res.Body}, take); err != nil {
		return p, fmt.Errorf("read the list: %w", err)
	}
	return p, nil
}

// decodePage reads a list one item after another.
func decodePage(from *bounded, take func(json.RawMessage) error) (p page, err error) {
	d := json.NewDecoder(from)
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return p, errors.Join(errors.New("it is no object"), err)
	}
	itemized := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return p, err
		}
		switch key {
		case "kind":
			err = d.Decode(&p.Kind)
		case "metadata":
			err = d.Decode(&p.Metadata)
		case "items":
			itemized = true
			err = decodeItems(d, from, take)
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return p, err
		}
	}
	if _, err := d.Token(); err != nil {
		return p, err // it is cut off
	}
	if !itemized || !strings.HasSuffix(p.Kind, "List") {
		return p, fmt.Errorf("the answer is no list, but of kind %q", p.Kind)
	}
	return p, nil
}

func decodeItems(d *json.Decoder, from *bounded, take func(json.RawMessage) error) error {
	switch token, err := d.Token(); {
	case err != nil:
		return err
	case token == nil:
		return nil // null
	case token != json.Delim('['):
		return errors.New("items: want a list")
	}
	for d.More() {
		var item json.RawMessage
		from.read = 0
		if err := d.Decode(&item); err != nil {
			return err
		}
		if err := take(item); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// event is one of a watch.
type event struct {
	Type   string
	Object json.RawMessage
}

// watch hands the events after a resource version to take until the server ends it after about a time, take returns an error, or the server
// does not end it in time. It calls opened once the server has accepted it.
func (a *api) watch(
	ctx context.Context, path, selector string, after uint64, lasts time.Duration, opened func(), take func(event) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatUint(after, 10)},
		"timeoutSeconds": {strconv.Itoa(max(1, int(lasts.Seconds())))},
	}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	res, err := a.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	opened()
	from := &bounded{from: res.Body}
	for d := json.NewDecoder(from); ; {
		var e event
		from.read = 0
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the watch: %w", err)
		case e.Type == "ERROR":
			return statusOf(e.Object)
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// bounded reads what one object may have and no more.
type bounded struct {
	from io.Reader
	read int // since the object began
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.read > maxObject {
		return 0, fmt.Errorf("an object has more than %d MiB", maxObject>>20)
	}
	n, err := b.from.Read(p)
	b.read += n
	return n, err
}

// meta is what the source needs to know of every object.
type meta struct {
	Namespace, Name string
	ResourceVersion string
	Labels          map[string]string

	apiVersion string // of the object; empty if it does not say
}

func (m meta) key() string { return m.Namespace + "/" + m.Name }

// metaOf reads the metadata of an object. name says what is at fault if it has none.
func metaOf(object json.RawMessage) (meta, uint64, error) {
	var o struct {
		APIVersion string
		Metadata   meta
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return meta{}, 0, fmt.Errorf("read an object: %w", err)
	}
	version, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return meta{}, 0, fmt.Errorf("read %s: the resource version is %q, want a number", o.Metadata.key(), o.Metadata.ResourceVersion)
	}
	o.Metadata.apiVersion = o.APIVersion
	return o.Metadata, version, nil
}
