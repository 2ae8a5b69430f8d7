package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"tributary/internal/body"
)

// Envoy is asked what it has.
type Envoy struct {
	// Where is http://HOST:PORT or unix:///PATH of its admin server, or a file with its /config_dump?include_eds.
	Where string
	// Client asks; its transport is not used for a unix socket.
	Client *http.Client
}

// IsFile says whether it was asked already, and its answer is in a file.
func (e *Envoy) IsFile() bool { return !strings.Contains(e.Where, "://") }

// Check says what is wrong with the address.
func (e *Envoy) Check() error {
	if strings.HasPrefix(e.Where, "unix://") && len(e.Where) > len("unix://") || e.Where != "" && e.IsFile() {
		return nil
	}
	u, err := url.Parse(e.Where)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("want http://HOST:PORT or unix:///PATH of an Envoy's admin server, or a file, got %q", e.Where)
	}
	return nil
}

// Dump returns what the Envoy has. It is an error if it does not say who it is.
func (e *Envoy) Dump(ctx context.Context) (*Dump, error) {
	text, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	d, err := ParseDump(text)
	if err == nil && d.Node == nil {
		err = errors.New("there is no bootstrap in the dump, which would say who this Envoy is: save all of /config_dump?include_eds")
	}
	if err == nil && !d.members {
		err = errors.New("there are no endpoints in the dump: save /config_dump?include_eds")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Where, err)
	}
	return d, nil
}

func (e *Envoy) read(ctx context.Context) ([]byte, error) {
	base, client := strings.TrimSuffix(e.Where, "/"), *e.Client
	if socket, ok := strings.CutPrefix(e.Where, "unix://"); ok {
		base = "http://localhost"
		client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
	} else if e.IsFile() {
		return readFile(e.Where)
	}
	return get(ctx, &client, base+"/config_dump?include_eds")
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := body.Read(f, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// get returns a page.
func get(ctx context.Context, client *http.Client, page string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // everything was read
	text, err := body.Read(resp.Body, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", page, resp.Status)
	}
	return text, nil
}
