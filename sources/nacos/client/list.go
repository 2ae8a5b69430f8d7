package client

import (
	"context"
	"fmt"
	"slices"
)

// The limits of lists. A server that is asked for pages may have a set that changes from one page to the next.
const (
	pageSize = 500
	maxNames = 100_000 // of a group; what lists more is no Nacos that anything can be done with
	maxWalks = 3       // over a list that turns out shorter than it is said to be
)

// list are the names of a group's services, as one walk over its pages found them.
type list struct {
	names map[string]bool
	pages int
}

// list returns the names of all services of a group.
func (c *conn) list(ctx context.Context, group string) (l list, err error) {
	for range maxWalks {
		count := 0
		if l, count, err = c.walk(ctx, group); err != nil {
			return list{}, fmt.Errorf("list the services of group %s: %w", group, err)
		}
		if len(l.names) >= count {
			return l, nil
		}
		err = fmt.Errorf("list the services of group %s: %d of %d came", group, len(l.names), count)
	}
	return list{}, err
}

// walk reads page after page until all came that the last one counts, or one has nothing new.
func (c *conn) walk(ctx context.Context, group string) (l list, count int, err error) {
	l.names = map[string]bool{}
	for {
		l.pages++
		var a serviceListAnswer
		if err := c.request(ctx, "ServiceListRequest", serviceList{c.address.NamespaceName(), group, l.pages, pageSize, ""}, &a); err != nil {
			return l, 0, err
		}
		known := len(l.names)
		for _, name := range a.Names {
			l.names[ungrouped(name)] = true
		}
		switch {
		case len(l.names) > maxNames || a.Count > maxNames:
			return l, 0, fmt.Errorf("%s has %d or more, and of more than %d (maxNames) none are read: have a group for what is to be read", c.server,
				max(len(l.names), a.Count), maxNames)
		case len(l.names) == known || len(l.names) >= a.Count:
			return l, a.Count, nil
		}
	}
}

// lists are the names of a group's services over time. What has one page is the list of a moment. Over several pages a name can slip from
// one to the other as another one goes, so that only what two walks in a row did not find is not there.
type lists struct {
	read     bool
	last     list     // of this connection
	reported []string // nil if there was an error
}

// look returns the names of all services of a group.
func (l *lists) look(ctx context.Context, c *conn, group string) ([]string, error) {
	now, err := c.list(ctx, group)
	if err != nil {
		return nil, err
	}
	if !l.read && now.pages > 1 {
		l.last = now
		if now, err = c.list(ctx, group); err != nil {
			return nil, err
		}
	}
	all := append([]string{}, keys(now.names)...)
	if now.pages > 1 {
		for name := range l.last.names {
			if !now.names[name] {
				all = append(all, name)
			}
		}
	}
	l.read, l.last = true, now
	slices.Sort(all)
	return all, nil
}
