package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// wellness is an expression that tells whether the page says that all is well.
const wellness = `document.querySelector('#verdict').classList.contains('ok')`

// picture keeps the picture of a tab, for the docs: E2E_PICTURES is the folder.
func picture(t *testing.T, tab *fixture.Tab, name string) {
	t.Helper()
	if dir := os.Getenv("E2E_PICTURES"); dir != "" {
		tab.Picture(t, filepath.Join(dir, name))
	}
}

// inert fails the test if a script from served data ran.
func inert(t *testing.T, tab *fixture.Tab) {
	t.Helper()
	require.False(t, fixture.Evaluate[bool](t, tab, "window.hurt !== undefined || document.querySelectorAll('script').length !== 1"))
}

// find asks the page for objects.
func find(t *testing.T, tab *fixture.Tab, query string) {
	t.Helper()
	fixture.Evaluate[bool](t, tab,
		fmt.Sprintf(`(() => { const f = document.querySelector('#filter'); f.elements.q.value = %q; f.requestSubmit(); return true; })()`, query))
}

// TestPage shows the page at / of the admin port in a real browser.
func TestPage(t *testing.T) {
	t.Parallel()
	browser := fixture.StartBrowser(t)

	t.Run("empty", func(t *testing.T) {
		tributary := fixture.StartTributary(t, fixture.Files("rules", t.TempDir()))
		tributary.AwaitReady(t)
		tab := browser.Open(t, tributary.URL("/"), 1280, 900, "light")
		tab.Await(t, 5*time.Second, wellness)
		assert.Contains(t, tab.Text(t, "#verdict"), "1 source, 0 objects, 0 clients")
		assert.Contains(t, tab.Text(t, "#results"), "Nothing is served.")
		assert.Contains(t, tab.Text(t, "#clients"), "No client is connected.")
		tab.Await(t, 5*time.Second, `document.querySelector('#live').innerText === 'Live'`)
		tab.Accessible(t)
		tab.Clean(t, tributary.Admin)
	})

	t.Run("healthy", func(t *testing.T) {
		dir, old := t.TempDir(), t.TempDir()
		fill(t, dir)
		write(t, old, "s00.yaml", serviceEntry("s00", 8080))
		tributary := fixture.StartTributary(t, fixture.Files("rules", dir), fixture.Files("legacy", old))
		tributary.AwaitReady(t)
		istiod := tributary.StartIstiod(t)
		istiod.AwaitSynced(t)
		tab := browser.Open(t, tributary.URL("/"), 1280, 600, "light")
		tab.Await(t, 10*time.Second, wellness+` && document.querySelector('#flow').innerText.includes('all acknowledged')`)
		assert.Contains(t, tab.Text(t, "#verdict"), "2 sources, 24 objects, 1 client")
		assert.Contains(t, tab.Text(t, "#flow table"), "1 × istiod")
		assert.Contains(t, tab.Text(t, "#clients"), "istiod-e2e")
		picture(t, tab, "page-healthy.png")

		// An object: the source that wins, the source that loses, and both versions.
		tab.Do(t, chromedp.Click(`//a[text()="shop/s00"]`))
		tab.Await(t, 5*time.Second, `!document.querySelector('#object').hidden && document.activeElement.id === 'object-title'`)
		text := tab.Text(t, "#object")
		for _, part := range []string{
			"ServiceEntry shop/s00", "rules wins", "legacy shadowed", "number: 80",
			"tributary explain ServiceEntry shop/s00",
		} {
			assert.Contains(t, text, part)
		}
		tab.Accessible(t)
		tab.Clean(t, tributary.Admin)

		dark := browser.Open(t, tributary.URL("/"), 1280, 600, "dark")
		dark.Await(t, 5*time.Second, `document.querySelector('#live').innerText === 'Live'`)
		dark.Accessible(t)
		picture(t, dark, "page-dark.png")
	})

	t.Run("a source is killed", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir)
		upstream := fixture.StartTributary(t, fixture.Files("rules", dir))
		upstream.AwaitReady(t)
		tributary := fixture.StartTributary(t, fixture.Upstream("upstream", upstream.XDS), fixture.Files("own", t.TempDir()))
		tributary.AwaitReady(t)
		tab := browser.Open(t, tributary.URL("/"), 1280, 720, "light")
		tab.Await(t, 10*time.Second, wellness+` && document.querySelector('#live').innerText === 'Live'`)
		fixture.Evaluate[bool](t, tab, "window.sameDocument = true")
		upstream.Kill()
		took := tab.Await(t, 2*time.Second, `document.querySelector('#verdict').classList.contains('bad') && window.sameDocument`)
		t.Logf("the verdict turned %v after the source was killed", took)
		assert.Contains(t, tab.Text(t, "h1"), "source upstream is unreachable")
		picture(t, tab, "page-broken.png")
		tab.Do(t, chromedp.Click(chromedp.CSS("#sentence a")))
		tab.Await(t, 2*time.Second, `location.hash === '#source-upstream' && document.querySelector('#source-upstream').innerText.includes('24')`)
		tab.Accessible(t)
		tab.Clean(t, tributary.Admin)

		narrow := browser.Open(t, tributary.URL("/?object=ServiceEntry/shop/s01"), 360, 780, "light")
		narrow.Await(t, 5*time.Second, `document.querySelector('#live').innerText === 'Live'`)
		assert.LessOrEqual(t, fixture.Evaluate[int](t, narrow, "document.documentElement.scrollWidth"), 360, "it is scrolled from side to side")
		narrow.Accessible(t)
		picture(t, narrow, "page-narrow.png")

		upstream.Restart(t)
		tab.Await(t, 20*time.Second, wellness+" && window.sameDocument")
	})

	t.Run("a hold is released", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir)
		tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
		tributary.AwaitReady(t)
		tab := browser.Open(t, tributary.URL("/?show=held"), 1280, 1000, "light")
		tab.Await(t, 10*time.Second, wellness)
		empty(t, dir)
		awaitHold(t, tributary, many)
		tab.Await(t, 5*time.Second, `document.querySelector('.hold') !== null`)
		assert.Contains(t, tab.Text(t, "#results"), "the source no longer has it")
		tab.Accessible(t)

		tab.Do(t, chromedp.Click(chromedp.CSS(".hold button")), chromedp.WaitVisible(chromedp.CSS("#ask")),
			chromedp.Click(chromedp.CSS(`#ask button[value="no"]`)), chromedp.WaitNotVisible(chromedp.CSS("#ask")))
		require.Len(t, heldLosses(t, tributary), 1, "it was not meant")
		tab.Do(t, chromedp.Click(chromedp.CSS(".hold button")), chromedp.WaitVisible(chromedp.CSS("#ask")),
			chromedp.Click(chromedp.CSS(`#ask button[value="yes"]`)))
		tab.Await(t, 5*time.Second, wellness+` && document.querySelector('.hold') === null`)
		assert.Empty(t, heldLosses(t, tributary))
		tab.Clean(t, tributary.Admin)
	})

	t.Run("texts of clients and files are escaped", func(t *testing.T) {
		const evil = `<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>`
		dir := t.TempDir()
		write(t, dir, "good.yaml", serviceEntry("good", 80))
		write(t, dir, "evil.yaml", strings.ReplaceAll(serviceEntry("good", 80), "name: good,", fmt.Sprintf("name: %q,", evil)))
		tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
		tributary.AwaitReady(t)
		stream := fixture.OpenStream(t, tributary.XDS, evil)
		stream.Subscribe(t, serviceEntries, "")
		stream.Nack(t, stream.Next(t), "", "it is not to be had: "+evil)

		tab := browser.Open(t, tributary.URL("/?show=quarantined"), 1280, 1000, "light")
		tab.Await(t, 5*time.Second, `document.querySelector('#clients q') !== null`)
		assert.Contains(t, tab.Text(t, "#clients"), "it is not to be had: "+evil)
		assert.Contains(t, tab.Text(t, "#clients"), "Rejects "+serviceEntries)
		assert.Contains(t, tab.Text(t, "#results"), evil)
		inert(t, tab)
		find(t, tab, evil)
		tab.Await(t, 5*time.Second, `location.search.includes('script')`)
		inert(t, tab)
		tab.Accessible(t)
		tab.Clean(t, tributary.Admin)
	})

	t.Run("100,000 objects", func(t *testing.T) {
		const files, each = 100, 1000
		dir := t.TempDir()
		for i := range files {
			var documents strings.Builder
			for j := range each {
				documents.WriteString("---\n" + serviceEntry(fmt.Sprintf("s%d", i*each+j), 80))
			}
			write(t, dir, fmt.Sprintf("f%d.yaml", i), documents.String())
		}
		tributary := fixture.StartTributaryWith(t, fmt.Sprintf("configSources: [{name: rules, address: 'fs://%s'}]", dir))
		tributary.WaitFor(t, 2*time.Minute, func() error {
			status, body, err := fixture.Get(t.Context(), tributary.URL("/-/ready"))
			if err == nil && status != 200 {
				err = fmt.Errorf("%s", body)
			}
			return err
		})
		tab := browser.Open(t, tributary.URL("/"), 1280, 1000, "light")
		tab.Await(t, 10*time.Second, `document.querySelector('#results .pager')?.innerText.includes('1 to 50 of 100000')`)
		tab.Do(t, chromedp.SendKeys(chromedp.CSS("#filter input[type=search]"), "s99999"))
		t.Logf("the search result is there after %v", tab.Await(t, 10*time.Second,
			`document.querySelectorAll('#results tbody tr').length === 1`))
		find(t, tab, "")
		tab.Await(t, 10*time.Second, `document.querySelector('#results .pager')?.innerText.includes('1 to 50 of 100000')`)
		tab.Do(t, chromedp.Click(`//div[@id="results"]//a[text()="Last"]`))
		t.Logf("the last page is there after %v", tab.Await(t, 10*time.Second,
			`document.querySelector('#results .pager').innerText.includes('99951 to 100000')`))
		tab.Clean(t, tributary.Admin)
	})
}
