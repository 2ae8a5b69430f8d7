package sources

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

func TestCommit_IsOneLogLine(t *testing.T) {
	entry := func(name, place string) *resource.Resource {
		key := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}
		r, err := resource.New(resource.Meta{Key: key, Origin: resource.Origin{Source: "mesh", Place: place}}, &networking.ServiceEntry{})
		require.NoError(t, err)
		return r
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	changeLog := newChangeLog()
	changeLog.logChanges(log, nil)
	require.Empty(t, out.String())
	changeLog.logChanges(log, []memstore.Change{
		{New: entry("a", "a.yaml:1")}, {Old: entry("b", "a.yaml:9"), New: entry("b", "a.yaml:7")}, {Old: entry("c", "c.yaml:1")},
	})
	require.Equal(t, `level=INFO msg="source changed" added=1 updated=1 deleted=1 `+
		`objects="+ServiceEntry shop/a, ~ServiceEntry shop/b, -ServiceEntry shop/c" places="a.yaml:1, a.yaml:7, c.yaml:1"`,
		strings.TrimSpace(out.String()))

	out.Reset()
	many := make([]memstore.Change, 12)
	for i := range many {
		many[i] = memstore.Change{New: entry(strings.Repeat("x", i+1), "many.yaml:1")}
	}
	changeLog.logChanges(log, many)
	require.Contains(t, out.String(), "added=12")
	require.Contains(t, out.String(), `places=many.yaml:1 more=7`)

	out.Reset()
	changeLog.limiter = rate.NewLimiter(0, 1)
	for range 4 {
		changeLog.logChanges(log, many)
	}
	require.Equal(t, 1, strings.Count(out.String(), "source changed"))
	changeLog.limiter = rate.NewLimiter(0, 1)
	changeLog.logChanges(log, many)
	require.Contains(t, out.String(), "commits_before=3")
}
