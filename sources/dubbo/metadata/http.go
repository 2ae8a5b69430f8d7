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
func overHTTP(ctx context.Context, address string, i provider.Instance) (metadata provider.Metadata, err error) {
	parsed := url.URL{
		Scheme: "http", Host: address, Path: "/" + service + "/getMetadataInfo",
		RawQuery: url.Values{"revision": {i.Revision}}.Encode(),
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, parsed.String(), http.NoBody)
	if err != nil {
		return metadata, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return metadata, err
	}
	intake.Bound(response) //nolint:bodyclose // it is closed below
	defer func() { _ = response.Body.Close() }()
	text, err := intake.Read(response.Body, maxAnswer)
	if err != nil {
		return metadata, err
	}
	if response.StatusCode != http.StatusOK {
		return metadata, fmt.Errorf("HTTP %d: %s", response.StatusCode, provider.Shorten(string(text)))
	}
	metadata, _, err = provider.ParseMetadata(text)
	return metadata, err
}
