package page

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzQuery has a browser ask for anything: what its links lead to is what it asked for.
func FuzzQuery(f *testing.F) {
	f.Add("q=a&kind=ServiceEntry&show=held&object=ServiceEntry/a/b/c&page=3&clients=-1")
	f.Add("q=%ff%c3&page=99999999999999999999&object=x")
	f.Add("q=" + strings.Repeat("a", longestFilter-1) + "%0Db") // what is cut off ends with a space
	f.Fuzz(func(t *testing.T, text string) {
		v, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		testutil.Cost(t, len(text), 1000, func() {
			q := parse(v)
			require.LessOrEqual(t, len(q.filter), longestFilter)
			link, err := url.Parse(q.link("objects"))
			require.NoError(t, err)
			require.Equal(t, q.link("objects"), parse(link.Query()).link("objects"))
			p := newPager(q, "objects", q.page, 120)
			require.True(t, p.from <= p.to && p.to <= 120)
		})
	})
}
