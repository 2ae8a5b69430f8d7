package layout

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/pagetest"
)

const top = "../.."

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	code    = regexp.MustCompile("`[^`\n]*`")
	titled  = regexp.MustCompile(`^#+ (.*?)\s*$`)
	foreign = regexp.MustCompile(`^[a-z]+:`)
)

// TestIndex holds that docs/README.md has every page for users.
func TestIndex(t *testing.T) {
	pages, err := pagetest.Pages(top)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(top, "docs/README.md"))
	require.NoError(t, err)
	listed := make(map[string]bool)
	for _, link := range linked.FindAllStringSubmatch(string(text), -1) {
		listed[path.Join("docs", link[1])] = true
	}
	for _, page := range pages {
		if page != "README.md" && page != "docs/README.md" && !listed[page] {
			t.Errorf("docs/README.md has no line for %s", page)
		}
	}
}

// TestLinks checks that the targets of links in pages exist, headings included.
func TestLinks(t *testing.T) {
	pages, err := pagetest.Pages(top)
	require.NoError(t, err)
	for _, pattern := range []string{"*.md", "*/README.md", "sources/README.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		require.NoError(t, err)
		for _, page := range found {
			rel, err := filepath.Rel(top, page)
			require.NoError(t, err)
			pages = append(pages, filepath.ToSlash(rel))
		}
	}
	links := 0
	for _, page := range pages {
		text, _ := prose(t, page)
		for n, line := range text {
			for _, m := range linked.FindAllStringSubmatch(line, -1) {
				if foreign.MatchString(m[1]) {
					continue
				}
				links++
				if complaint := leads(t, page, m[1]); complaint != "" {
					t.Errorf("%s:%d: %s: %s", page, n+1, m[1], complaint)
				}
			}
		}
	}
	require.Greater(t, links, 100)
	require.NotEmpty(t, leads(t, "docs/README.md", "no-such-page.md"))
	require.NotEmpty(t, leads(t, "docs/README.md", "start.md#no-such-heading"))
	require.Empty(t, leads(t, "docs/README.md", "start.md#1-install"))
}

// leads tells why a link of a page leads nowhere.
func leads(t *testing.T, page, link string) string {
	t.Helper()
	file, heading, _ := strings.Cut(link, "#")
	file, err := url.PathUnescape(file)
	require.NoError(t, err)
	if file == "" {
		file = page
	} else {
		file = path.Join(path.Dir(page), file)
	}
	if _, err := os.Stat(filepath.Join(top, file)); err != nil {
		return "is not there"
	}
	if heading == "" || !strings.HasSuffix(file, ".md") {
		return ""
	}
	if _, anchors := prose(t, file); !anchors[heading] {
		return "has no such heading"
	}
	return ""
}

// prose returns the lines of a page without code, and its link targets.
func prose(t *testing.T, page string) (lines []string, anchors map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, page))
	require.NoError(t, err)
	anchors = make(map[string]bool)
	inCode := false
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			line = ""
		}
		if inCode {
			line = ""
		}
		if m := titled.FindStringSubmatch(line); m != nil {
			id := pagetest.Anchor(m[1])
			for base, n := id, 1; anchors[id]; n++ {
				id = base + "-" + string(rune('0'+n))
			}
			anchors[id] = true
		}
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		lines = append(lines, code.ReplaceAllString(line, ""))
	}
	return lines, anchors
}
