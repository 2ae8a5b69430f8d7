package metadata

import (
	"context"
	"net/http"
	"net/url"

	"tributary/internal/fetch"
	"tributary/sources/dubbo/provider"
)

var client = fetch.Client{Timeout: patience, Limit: maxAnswer}

// overHTTP asks over HTTP, which Dubbo 3.3 serves on Triple's port.
func overHTTP(ctx context.Context, address string, i provider.Instance) (m provider.Metadata, err error) {
	path := "/" + service + "/getMetadataInfo?" + url.Values{"revision": {i.Revision}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.URL(address, path), http.NoBody)
	if err != nil {
		return m, err
	}
	request.Header.Set("Accept", "application/json")
	err = client.Do(request, func(text []byte) (err error) {
		m, _, err = provider.ParseMetadata(text)
		return err
	})
	return m, err
}
