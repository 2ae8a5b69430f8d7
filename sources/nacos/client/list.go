package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// The limits of lists. A list may change from one page to the next.
const (
	pageSize = 500
	maxNames = 100_000 // of a group; no useful Nacos lists more
	maxWalks = 3       // over a list that is shorter than its count
)

// names returns the names of a group's services. A removal can move a name to an earlier page while pages are read: the
// first list is read twice for that; later, a missing name does no harm, see session.listed.
func (c *conn) names(ctx context.Context, group string, first bool) ([]string, error) {
	names := map[string]bool{}
	for walks := 1; ; walks++ {
		count, pages, err := c.walk(ctx, group, names)
		switch {
		case err != nil:
			return nil, fmt.Errorf("list the services of group %s: %w", group, err)
		case len(names) < count && walks >= maxWalks:
			return nil, fmt.Errorf("list the services of group %s: %d of %d came", group, len(names), count)
		case len(names) >= count && (!first || pages == 1):
			return slices.Collect(maps.Keys(names)), nil
		case len(names) >= count:
			first = false
		}
	}
}

// walk adds the names of page after page until the count of the last page is reached, or a page has no new name.
func (c *conn) walk(ctx context.Context, group string, names map[string]bool) (count, pages int, err error) {
	added := map[string]bool{}
	for {
		pages++
		var answer serviceListAnswer
		if err := c.request(ctx, "ServiceListRequest", serviceList{c.address.NamespaceName(), group, pages, pageSize, ""},
			&answer); err != nil {
			return 0, pages, err
		}
		reported := len(added)
		for _, name := range answer.Names {
			added[ungrouped(name)], names[ungrouped(name)] = true, true
		}
		switch {
		case len(added) > maxNames || answer.Count > maxNames:
			return 0, pages, fmt.Errorf("%s has %d or more, and of more than %d (maxNames) none are read: have a group for "+
				"what is to be read",
				c.server, max(len(added), answer.Count), maxNames)
		case len(added) == reported || len(added) >= answer.Count:
			return answer.Count, pages, nil
		}
	}
}
