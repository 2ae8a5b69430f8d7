package metadata

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"tributary/internal/intake"
	"tributary/sources/dubbo/provider"
)

// client keeps no idle connections: each revision is asked for once.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// overHTTP asks over HTTP, which Dubbo 3.3 serves on Triple's port.
func overHTTP(ctx context.Context, address string, i provider.Instance) (m provider.Metadata, err error) {
	u := url.URL{
		Scheme: "http", Host: address, Path: "/" + service + "/getMetadataInfo",
		RawQuery: url.Values{"revision": {i.Revision}}.Encode(),
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return m, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return m, err
	}
	intake.Bound(res) //nolint:bodyclose // it is closed below
	defer func() { _ = res.Body.Close() }()
	text, err := intake.Read(res.Body, maxAnswer)
	if err != nil {
		return m, err
	}
	if res.StatusCode != http.StatusOK {
		return m, fmt.Errorf("HTTP %d: %s", res.StatusCode, provider.Shorten(string(text)))
	}
	m, _, err = provider.ParseMetadata(text)
	return m, err
}
