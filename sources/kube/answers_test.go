package kube_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// selects reports whether a request is for an object.
func selects(o map[string]any, namespace, selector string) bool {
	parsed, err := labels.Parse(selector)
	meta, _ := o["metadata"].(map[string]any)
	set, _ := meta["labels"].(map[string]string)
	return err == nil && meta != nil && (namespace == "" || meta["namespace"] == namespace) && parsed.Matches(labels.Set(set))
}

// typed returns an object with apiVersion and kind, which the items of lists of Kubernetes' own kinds do not have.
func typed(o map[string]any, resource, api string, list bool) map[string]any {
	o = maps.Clone(o)
	if _, group, _ := strings.Cut(resource, "."); !list || strings.Contains(group, "istio.io") || strings.Contains(group, "x-k8s.io") ||
		strings.Contains(group, "gateway.") {
		o["apiVersion"], o["kind"] = strings.TrimPrefix(api, "/"), kindOf[resource]
	}
	return o
}

// list answers with a page, which may be shorter than the client allows. The pages of a list are of one version.
func (c *cluster) list(response http.ResponseWriter, req *http.Request, resource, api, namespace string, f fault) {
	values := req.URL.Query()
	c.mu.Lock()
	limit, _ := strconv.Atoi(values.Get("limit"))
	version, after := max(c.version-f.behind, c.oldest), ""
	if values.Has("continue") {
		v, key, _ := strings.Cut(values.Get("continue"), "|")
		version, _ = strconv.ParseUint(v, 10, 64)
		after = key
	}
	expired := values.Has("continue") && (f.expired || version < c.oldest || version > c.version)
	items, meta := []any{}, map[string]any{"resourceVersion": strconv.FormatUint(version, 10)}
	objects := c.at(resource, version)
	limit = min(limit, 1+c.random.IntN(5))
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if key <= after || !selects(objects[key], namespace, values.Get("labelSelector")) {
			continue
		}
		if len(items) == limit {
			meta["continue"] = fmt.Sprintf("%d|%s", version, after)
			break
		}
		items, after = append(items, typed(objects[key], resource, api, true)), key
	}
	if f.repeats && len(items) > 0 {
		items = append(items, items[len(items)-1])
	}
	if f.nameless {
		items = append(items, map[string]any{"metadata": map[string]any{"namespace": "shop", "resourceVersion": "5"}})
	}
	c.mu.Unlock()
	if expired {
		refuse(response, http.StatusGone, "Expired", 0)
		return
	}
	_ = json.NewEncoder(response).Encode(map[string]any{
		"apiVersion": strings.TrimPrefix(api, "/"), "kind": kindOf[resource] + "List", "metadata": meta, "items": items,
	})
}

// watch sends the changes after a version, and a bookmark once a minute.
func (c *cluster) watch(
	response http.ResponseWriter, request *http.Request, resource, api, namespace string, f fault, cut <-chan struct{},
) {
	values := request.URL.Query()
	sent, _ := strconv.ParseUint(values.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(values.Get("timeoutSeconds"))
	c.mu.Lock()
	early := c.random.IntN(2) == 0
	if f.event == 0 && (sent < c.oldest || f.expired) {
		f.event = http.StatusGone
	}
	c.mu.Unlock()
	if early && f.event == http.StatusGone {
		refuse(response, f.event, "Expired", 0)
		return
	}
	send := func(kind string, o map[string]any) {
		text, _ := json.Marshal(map[string]any{"type": kind, "object": o})
		_, _ = response.Write(append(text, '\n'))
		response.(http.Flusher).Flush()
	}
	response.(http.Flusher).Flush()
	if f.event != 0 {
		send("ERROR", status(f.event, map[int]string{http.StatusGone: "Expired"}[f.event]))
		return
	}
	if f.nameless {
		send("MODIFIED", map[string]any{})
	}
	end, minute := time.After(time.Duration(seconds)*time.Second), time.NewTicker(time.Minute)
	defer minute.Stop()
	for bookmark := false; ; {
		c.mu.Lock()
		behind := max(c.fault[resource].behind, c.fault[everything].behind)
		changed, deadline, ended := c.changed, c.version-min(behind, c.version), cut != c.cut
		var news []change
		for _, ch := range c.log {
			if ch.resource == resource && ch.version > sent && ch.version <= deadline {
				news = append(news, ch)
			}
		}
		previous := make(map[string]map[string]any)
		if len(news) > 0 {
			previous = c.at(resource, sent)
		}
		c.mu.Unlock()
		if ended {
			return // events after the cut are sent later
		}
		if f.disorder {
			slices.Reverse(news)
		}
		for _, ch := range news {
			before := selects(previous[ch.key], namespace, values.Get("labelSelector"))
			now := !ch.deleted && selects(ch.object, namespace, values.Get("labelSelector"))
			previous[ch.key] = ch.object
			if ch.deleted {
				delete(previous, ch.key)
			}
			kind := map[[2]bool]string{{false, true}: "ADDED", {true, true}: "MODIFIED", {true, false}: "DELETED"}[[2]bool{before, now}]
			if kind == "" || f.silent {
				continue
			}
			send(kind, typed(ch.object, resource, api, false))
			if f.repeats {
				send(kind, typed(ch.object, resource, api, false))
			}
		}
		sent = max(sent, deadline)
		if bookmark && !f.silent {
			named := sent
			if f.backwards {
				named -= 5
			}
			send("BOOKMARK", map[string]any{
				"kind": kindOf[resource], "apiVersion": strings.TrimPrefix(api, "/"),
				"metadata": map[string]any{"resourceVersion": strconv.FormatUint(named, 10), "creationTimestamp": nil},
			})
		}
		bookmark = false
		select {
		case <-changed:
		case <-minute.C:
			bookmark = true
		case <-cut:
			return
		case <-end:
			return
		case <-request.Context().Done():
			return
		}
	}
}
