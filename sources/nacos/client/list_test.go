package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/nacos/client"
	"tributary/sources/nacos/nacostest"
)

func TestServiceList_ReadsEveryPage(t *testing.T) {
	s := nacostest.Start(t)
	for i := range 1203 {
		put(s, fmt.Sprint("s", i), "1", "10.0.0.1")
	}
	_, l := follow(t, s.Address(), client.Watched{Selects: func(_, service string) bool { return strings.HasPrefix(service, "s120") }})
	l.await(t, "they are read", func() bool { return len(l.names["DEFAULT_GROUP"]) == 4 && len(l.instances) == 4 })
}

// TestServiceRemovedBetweenPages_HidesNoOther has a name slip from the second page to the first one as another one
// goes, at the first list of a connection and at a later one; the counts fit.
func TestServiceRemovedBetweenPages_HidesNoOther(t *testing.T) {
	for name, removedAt := range map[string]int{"at first": 1, "later": 5} {
		t.Run(name, func(t *testing.T) {
			s := nacostest.Start(t)
			for n := range 1000 {
				put(s, fmt.Sprintf("s%04d", n), "1", "10.0.0.1")
			}
			lists := 0
			s.Listed = func(page int, services map[string]map[string]any) {
				if page == 1 {
					if lists++; lists == removedAt {
						delete(services, "DEFAULT_GROUP@@s0000")
					}
				}
			}
			hidden := false
			l := newListener()
			l.onNames = func(names []string) { hidden = hidden || !slices.Contains(names, "s0500") }
			l.follow(t, s.Address(), client.Watched{Selects: func(_, service string) bool { return service == "s0000" || service == "s0500" }})
			l.await(t, "the one that went is not listed", func() bool {
				return l.names["DEFAULT_GROUP"] != nil && !slices.Contains(l.names["DEFAULT_GROUP"], "s0000")
			})
			l.do(func() { require.False(t, hidden, "the other service is always listed") })
		})
	}
}

// TestServiceListShorterThanCount_Fails has a server that counts more than it lists, and has the same on each page.
func TestServiceListShorterThanCount_Fails(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	server.More = 1
	_, l := follow(t, server.Address(), client.Watched{Interval: time.Minute})
	l.await(t, "the error is reported", func() bool { return l.errs["DEFAULT_GROUP"] != nil })
	require.EqualError(t, l.errs["DEFAULT_GROUP"], "list the services of group DEFAULT_GROUP: 1 of 2 came")
	require.Equal(t, 6, server.Requests("ServiceListRequest"), "three times, until a page has no new name")
}

// TestRelistedService_WasNeverRemoved has a service vanish from the list, and come back, and its own answer is the same
// all the time.
func TestRelistedService_WasNeverRemoved(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	listener := newListener()
	listener.onNames = func(names []string) { require.Contains(t, names, "orders") }
	listener.follow(t, server.Address(), client.Watched{})
	listener.awaitInstances(t, orders, 1)
	before := server.Requests("SubscribeServiceRequest")
	server.Hide("DEFAULT_GROUP", "orders")
	listener.await(t, "it is asked", func() bool { return server.Requests("SubscribeServiceRequest") > before })
	server.Show("DEFAULT_GROUP", "orders")
	put(server, "carts", "1", "10.0.0.2")
	listener.await(t, "another one is listed", func() bool { return len(listener.names["DEFAULT_GROUP"]) == 2 })
}

// TestNamesOverLimit_Refused has a server count or list more names than the limit: known services stay.
func TestNamesOverLimit_Refused(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	_, l := follow(t, server.Address(), client.Watched{})
	l.awaitInstances(t, orders, 1)
	server.Count(100_000)
	l.await(t, "the error is reported", func() bool { return l.errs["DEFAULT_GROUP"] != nil })
	l.do(func() {
		require.ErrorContains(t, l.errs["DEFAULT_GROUP"], "list the services of group DEFAULT_GROUP: 127.0.0.1:")
		require.ErrorContains(t, l.errs["DEFAULT_GROUP"], " has 100001 or more, and of more than 100000 (maxNames) none are read: have a group "+
			"for what is to be read")
		require.Len(t, l.instances[orders], 1)
	})
}
