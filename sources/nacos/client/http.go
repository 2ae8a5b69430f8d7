package client

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

	"tributary/internal/fetch"
)

// web sends HTTP requests that gRPC does not offer.
type web struct {
	fetch.Client

	address Address
}

// Bounds of a request over HTTP.
const (
	callTimeout = 5 * time.Second
	maxPage     = 8 << 20 // bytes of an answer
)

func newWeb(address Address, config TLS) web {
	return web{fetch.Client{TLS: config, Timeout: callTimeout, Limit: maxPage}, address}
}

// ask sends a request to a server: a POST has the values as a form, and others have them in the URL. A token may be
// empty. The text is the body of an answer with status 200.
func (w web) ask(
	ctx context.Context, server, method, path, token string, values url.Values,
) (status int, text []byte, err error) {
	if w.address.ContextPath != "" {
		path = "/" + w.address.ContextPath + path
	}
	form := io.Reader(http.NoBody)
	if method == http.MethodPost {
		form = strings.NewReader(values.Encode())
	} else if len(values) > 0 {
		path += "?" + values.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, w.URL(server, path), form)
	if err != nil {
		return 0, nil, err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if token != "" {
		request.Header.Set("accessToken", token)
	}
	err = w.Do(request, func(answer []byte) error { text = answer; return nil })
	if refusal, ok := errors.AsType[*fetch.StatusError](err); ok {
		return refusal.Code, nil, nil
	}
	return http.StatusOK, text, err
}

// readyPaths are the public paths with the readiness of a server of 3.x and of 2.x.
var readyPaths = []string{"/v3/admin/core/state/readiness", "/v1/console/health/readiness"}

// ready reports whether a server is ready.
func (w web) ready(ctx context.Context, server string) bool {
	for _, path := range readyPaths {
		if status, _, err := w.ask(ctx, server, http.MethodGet, path, "", nil); err == nil && status == http.StatusOK {
			return true
		}
	}
	return false
}

// configPage is the number of configuration texts in a page, and maxConfigs the limit of a group.
const (
	configPage = 100
	maxConfigs = 20_000
)

// Configs returns the names of the configuration texts of a group, which only HTTP lists. It is called while Watch
// runs.
func (c *Client) Configs(ctx context.Context, group string) ([]string, error) {
	conn, err := c.current()
	if err != nil {
		return nil, err
	}
	pass, err := c.login.get(ctx, conn.server)
	if err != nil {
		return nil, err
	}
	var configs []string
	for page, count := 1, 1; len(configs) < count; page++ {
		var names []string
		if names, count, err = c.login.configs(ctx, conn.server, pass.token, c.address.Namespace, group, page); err != nil {
			return nil, fmt.Errorf("list the configuration of group %s: %w", group, pass.explain(err))
		}
		if len(names) == 0 {
			break // the list became shorter
		}
		if configs = append(configs, names...); len(configs) > maxConfigs || count > maxConfigs {
			return nil, fmt.Errorf("list the configuration of group %s of %s: there are %d or more, and of more than %d "+
				"(maxConfigs) none are "+
				"read: delete those that nobody needs",
				group, conn.server, max(len(configs), count), maxConfigs)
		}
	}
	return configs, nil
}

// configs returns a page of the names of the configuration texts of a group, and the number of all.
func (w web) configs(ctx context.Context, server, token, namespace, group string, page int) (names []string, count int,
	err error,
) {
	values := url.Values{
		"dataId": {""}, "search": {"blur"}, "pageNo": {strconv.Itoa(page)},
		"pageSize": {strconv.Itoa(configPage)},
	}
	for _, api := range []struct{ path, group, namespace string }{ // of 3.x and of 2.x
		{"/v3/admin/cs/config/list", "groupName", "namespaceId"},
		{"/v1/cs/configs", "group", "tenant"},
	} {
		values.Set(api.group, group)
		values.Set(api.namespace, namespace)
		status, body, failed := w.ask(ctx, server, http.MethodGet, api.path, token, values)
		switch {
		case failed != nil:
			return nil, 0, failed
		case status == http.StatusForbidden || status == http.StatusUnauthorized:
			return nil, 0, fmt.Errorf("%s: %w", api.path, ErrDenied)
		case status != http.StatusOK:
			err = fmt.Errorf("%s: %d %s", api.path, status, http.StatusText(status))
			continue
		}
		return readConfigs(body)
	}
	return nil, 0, err
}

// readConfigs reads a page of configuration, which is in the data of an answer of 3.x.
func readConfigs(body []byte) (names []string, count int, err error) {
	type list struct {
		Count int `json:"totalCount"`
		Items []struct {
			DataID string `json:"dataId"`
		} `json:"pageItems"`
	}
	var document struct {
		list

		Data *list `json:"data"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, 0, err
	}
	page := document.list
	if document.Data != nil {
		page = *document.Data
	}
	for _, i := range page.Items {
		names = append(names, i.DataID)
	}
	return names, page.Count, nil
}
