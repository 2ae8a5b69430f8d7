package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// The limits of lists. A server that is asked for pages may have a set that changes from one page to the next.
const (
	pageSize = 500
	maxNames = 100_000 // of a group; what lists more is no Nacos that anything can be done with
	maxWalks = 3       // over a list that turns out shorter than it is said to be
)

// names returns the names that the list of a group's services has. Over several pages a name can slip from one to the other as another one
// goes: at first we read such a list twice; later, a name that is missing is no harm, see session.listed.
func (c *conn) names(ctx context.Context, group string, first bool) ([]string, error) {
	all := map[string]bool{}
	for walks := 1; ; walks++ {
		count, pages, err := c.walk(ctx, group, all)
		switch {
		case err != nil:
			return nil, fmt.Errorf("list the services of group %s: %w", group, err)
		case len(all) < count && walks >= maxWalks:
			return nil, fmt.Errorf("list the services of group %s: %d of %d came", group, len(all), count)
		case len(all) >= count && (!first || pages == 1):
			return slices.Collect(maps.Keys(all)), nil
		case len(all) >= count:
			first = false
		}
	}
}

// walk adds the names of page after page until all came that the last one counts, or one has nothing new.
func (c *conn) walk(ctx context.Context, group string, all map[string]bool) (count, pages int, err error) {
	here := map[string]bool{}
	for {
		pages++
		var a serviceListAnswer
		if err := c.request(ctx, "ServiceListRequest", serviceList{c.address.NamespaceName(), group, pages, pageSize, ""}, &a); err != nil {
			return 0, pages, err
		}
		known := len(here)
		for _, name := range a.Names {
			here[ungrouped(name)], all[ungrouped(name)] = true, true
		}
		switch {
		case len(here) > maxNames || a.Count > maxNames:
			return 0, pages, fmt.Errorf("%s has %d or more, and of more than %d (maxNames) none are read: have a group for what is to be read",
				c.server, max(len(here), a.Count), maxNames)
		case len(here) == known || len(here) >= a.Count:
			return a.Count, pages, nil
		}
	}
}
