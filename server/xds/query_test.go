package xds

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/xdstest"
)

func TestQueryType_RunsQueryBeforeResponse(t *testing.T) {
	for variant, dial := range map[string]func(*fixture) *xdstest.Client{
		"sotw":  func(w *fixture) *xdstest.Client { return w.sotw() },
		"delta": func(w *fixture) *xdstest.Client { return w.delta() },
	} {
		t.Run(variant, func(t *testing.T) {
			w := newFixture(t)
			var queries atomic.Int64
			coll := w.coll(testType)
			coll.typ.Query = func(names []string) error {
				turn := strconv.FormatInt(queries.Add(1), 10)
				if slices.Contains(names, "wrong") {
					return status.Error(codes.InvalidArgument, "no such question")
				}
				var answers []*Entry
				for i := range 2 * len(names) {
					answers = append(answers, padded(t, "answer-"+strconv.Itoa(i), turn, ""))
				}
				coll.Apply(Commit{Put: answers, Reset: true, Version: turn})
				return nil
			}
			w.set(testType)
			c := dial(w)
			c.Subscribe(testType, []string{"a"}, "answer-0@1", "answer-1@1")
			c.Subscribe(testType, []string{"a"}, "answer-0@2", "answer-1@2")
			c.Ask(testType, "a", "b")
			c.Expect(testType, "answer-0@3", "answer-1@3", "answer-2@3", "answer-3@3")
			require.EqualValues(t, 3, queries.Load(), "an acknowledgement runs no query")
			c.Ask(testType, "wrong")
			require.Equal(t, codes.InvalidArgument, status.Code(c.Ended()))
		})
	}
}

func TestNoAckType_SyncedWhenSent(t *testing.T) {
	fixture := newFixture(t)
	fixture.coll(testType).typ.NoAck = true
	fixture.set(testType, "a")
	c := fixture.sotw()
	c.Ask(testType)
	c.Expect(testType, "a@1")
	require.True(t, fixture.server.Clients()[0].Types[0].Synced)
}

func TestServed_ListsSentResources(t *testing.T) {
	fixture := newFixture(t)
	fixture.set(testType, "a", "b")
	client := fixture.delta()
	client.Subscribe(testType, []string{"b", "missing"}, "b@1", "-missing")
	served := func() (names []string) {
		for _, served := range fixture.server.Served(1) {
			require.Equal(t, testType, served.TypeURL)
			for _, e := range served.Entries {
				names = append(names, e.Name+"@"+e.Version)
			}
		}
		return names
	}
	require.Equal(t, []string{"b@1"}, served())
	fixture.set(testType, "b@2")
	client.Expect(testType, "b@2")
	require.Equal(t, []string{"b@2"}, served())
	require.Nil(t, fixture.server.Served(99))
}

// Query may block. So a large request, which runs as heavy work, is refused: all other large requests would wait for it.
func TestLargeRequest_RunsNoQuery(t *testing.T) {
	fixture := newFixture(t)
	fixture.coll(testType).typ.Query = func([]string) error {
		t.Error("it was asked")
		return nil
	}
	fixture.set(testType)
	c := fixture.sotw()
	c.Ask(testType, strings.Repeat("a", heavyBytes))
	require.Equal(t, codes.InvalidArgument, status.Code(c.Ended()))
}
