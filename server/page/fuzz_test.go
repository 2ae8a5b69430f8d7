package page

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzQuery checks that the links of any query lead to the same query.
func FuzzQuery(f *testing.F) {
	f.Add("q=a&kind=ServiceEntry&show=held&object=ServiceEntry/a/b/c&page=3&clients=-1")
	f.Add("q=%ff%c3&page=99999999999999999999&object=x")
	f.Add("q=" + strings.Repeat("a", maxFilterBytes-1) + "%0Db") // the cut leaves a space at the end
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		testutil.Cost(t, len(text), 1000, func() {
			pageQuery := parseQuery(values)
			require.LessOrEqual(t, len(pageQuery.filter), maxFilterBytes)
			link, err := url.Parse(pageQuery.link("objects"))
			require.NoError(t, err)
			require.Equal(t, pageQuery.link("objects"), parseQuery(link.Query()).link("objects"))
			p := newPager(pageQuery, "objects", 120)
			require.True(t, p.from <= p.to && p.to <= 120)
		})
	})
}
