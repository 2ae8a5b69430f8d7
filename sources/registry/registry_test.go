package registry

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
)

func TestSelection(t *testing.T) {
	for name, c := range map[string]struct {
		selection Selection
		want      []string
	}{
		"all":     {Selection{}, []string{"a", "ab", "b"}},
		"wanted":  {Selection{Wanted: []string{"a*"}}, []string{"a", "ab"}},
		"skipped": {Selection{Skipped: []string{"a"}}, []string{"ab", "b"}},
		"both":    {Selection{Wanted: []string{"a*", "b"}, Skipped: []string{"?b"}}, []string{"a", "b"}},
	} {
		got := slices.DeleteFunc([]string{"a", "ab", "b"}, func(s string) bool { return !c.selection.Has(s) })
		require.Equal(t, c.want, got, name)
	}
	require.NoError(t, CheckPatterns("k", []string{"a*"}))
	require.EqualError(t, CheckPatterns("k", []string{"a", "["}), `k: "[" is no name or pattern`)
	require.EqualError(t, CheckPatterns("k", []string{""}), `k: "" is no name or pattern`)
}

func TestTime(t *testing.T) {
	unset, set := time.Duration(0), 2*time.Second
	require.NoError(t, errors.Join(Time("a", &unset, time.Minute, 0, time.Hour), Time("b", &set, time.Minute, 0, time.Hour)))
	require.Equal(t, []time.Duration{time.Minute, 2 * time.Second}, []time.Duration{unset, set})
	require.EqualError(t, Time("b", &set, time.Minute, time.Minute, time.Hour), "b: want 1m0s to 1h0m0s, got 2s")
}

func TestWait(t *testing.T) {
	for want, next := range map[time.Duration]time.Time{
		time.Hour: {}, time.Millisecond: start.Add(-time.Second), time.Second: start.Add(time.Second),
	} {
		require.Equal(t, want, Wait(next, start))
	}
	require.Equal(t, time.Hour, Wait(start.Add(2*time.Hour), start))
}

func TestService_ToResources(t *testing.T) {
	var content sources.Content
	r := resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Name: "a"}}, nil)
	add(&content, "p", []string{"b", "a"}, nil, r)
	add(&content, "p", []string{"b"}, nil, nil)
	bad := errors.New("bad")
	add(&content, "p\xff", nil, bad)
	require.Equal(t, sources.Content{
		Resources: []*resource.Resource{r}, Warnings: []string{"a", "b"},
		Rejects: []sources.Reject{{Origin: resource.Origin{Place: "p?"}, Err: bad}},
	}, tidy(content))
	require.Equal(t, sources.Denied, StateOf(fmt.Errorf("x: %w", bad), bad))
	require.Equal(t, sources.Unreachable, StateOf(errors.New("x"), bad))
}
