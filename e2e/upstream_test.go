package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestBehindIstiod runs the chain istiod (files), tributary, istiod. The last follows every change, keeps everything
// while the first is down and when it is back empty, and follows again once the first has its files.
func TestBehindIstiod(t *testing.T) {
	t.Parallel()
	away := byNight(5*time.Second, time.Minute)
	dir := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.Mkdir(dir, 0o700))
	fill(t, dir)
	first := fixture.StartIstiod(t, "fs://"+dir)
	upper := fixture.StartProxy(t, first.GRPC)
	tributary := fixture.StartTributary(t, fixture.Upstream("istiod", upper.Addr))
	lower := fixture.StartProxy(t, tributary.XDS)
	last := fixture.StartIstiod(t, "xds://"+lower.Addr)
	last.AwaitFolders(t, dir)

	change := hops(t, []hop{{"istiod to tributary", upper}, {"tributary to istiod", lower}}, func() {
		write(t, dir, "s01.yaml", serviceEntry("s01", 81))
		last.AwaitFolders(t, dir)
	})
	assert.Equal(t, 1, change[1].Messages, "one change is one message")
	write(t, dir, "added.yaml", serviceEntry("added", 80))
	last.AwaitFolders(t, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, "added.yaml")))
	last.AwaitFolders(t, dir)
	objects := fixture.ReadObjects(t, dir)
	watch := guard(t, last, objects)

	first.Kill()
	awaitState(t, tributary, "istiod", "unreachable", true)
	assert.Regexp(t, `(?m)^istiod +unreachable, stale +\d+ +0 .*serves its state of `, tributary.Ask(t, "status"))
	time.Sleep(away) // The test is about the time that the istiod is down.
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	first.Restart(t)
	back := time.Now()
	first.AwaitSynced(t)
	tributary.WaitFor(t, 40*time.Second, func() error {
		if h := source(t, tributary, "istiod").Held; h == nil || h.Objects != many {
			return fmt.Errorf("held is %+v, want %d objects", h, many)
		}
		return nil
	})
	t.Logf("it was connected again, and its empty answer held, %v after it was started", time.Since(back).Round(time.Millisecond))
	assert.Regexp(t, `(?m)^istiod +healthy +\d+ +24 objects and 24 endpoints `, tributary.Ask(t, "status"))
	tributary.StartIstiod(t).AwaitConfigs(t, objects)

	// Its files are back, whole and one after the other, and one of them has changed.
	t.Logf("the last istiod held everything at each of %d looks", watch.stop(t))
	write(t, dir+".away", "s01.yaml", serviceEntry("s01", 82))
	delete(objects, fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "s01"})
	watch = guard(t, last, objects)
	back = time.Now()
	move(t, dir+".away", dir)
	last.AwaitFolders(t, dir)
	awaitNoHold(t, tributary)
	t.Logf("all is as the files say %v after they were back", time.Since(back).Round(time.Millisecond))
	watch.stop(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "s02.yaml")))
	last.AwaitFolders(t, dir)
}

// TestBehindIstiod_PassesEveryKind shows that an object of every kind goes through the chain istiod, tributary, istiod unchanged.
func TestBehindIstiod_PassesEveryKind(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(filepath.Join("testdata", "kinds"))
	require.NoError(t, err)
	want := fixture.ReadObjects(t, dir)
	requireEveryKind(t, want)
	first := fixture.StartIstiod(t, "fs://"+dir)
	tributary := fixture.StartTributary(t, fixture.Upstream("istiod", first.GRPC))
	tributary.StartIstiod(t).AwaitConfigs(t, want)
}

// TestRestartWithoutUpstream shows that tributary serves its last state when it starts and its upstream is down,
// reports it as stale, and follows again once the upstream is back.
func TestRestartWithoutUpstream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir)
	first := fixture.StartIstiod(t, "fs://"+dir)
	tributary := fixture.StartTributary(t, fixture.Upstream("istiod", first.GRPC))
	last := tributary.StartIstiod(t)
	objects := fixture.ReadObjects(t, dir)
	last.AwaitConfigs(t, objects)
	awaitStored(t, tributary, "istiod", time.Time{})
	watch := guard(t, last, objects)

	first.Kill()
	tributary.Crash(t)
	tributary.AwaitAlive(t)
	tributary.AwaitReady(t)
	awaitState(t, tributary, "istiod", "unreachable", true)
	assert.Regexp(t, `(?m)^istiod +unreachable, stale`, tributary.Ask(t, "status"))
	istiodSynced(t, tributary)
	tributary.StartIstiod(t).AwaitConfigs(t, objects)

	first.Restart(t)
	first.AwaitSynced(t)
	awaitState(t, tributary, "istiod", "healthy", false)
	watch.stop(t)
	write(t, dir, "added.yaml", serviceEntry("added", 80))
	last.AwaitFolders(t, dir)
}

// TestTiers shows that one change among many objects crosses from one tributary to the next as one small message,
// and reaches the istiod behind them.
func TestTiers(t *testing.T) {
	t.Parallel()
	fixture.EachIstiod(t, tiers)
}

func tiers(t *testing.T, version fixture.IstiodVersion) {
	dir := t.TempDir()
	fillWith(t, dir, 300)
	top := fixture.StartTributary(t, fixture.Files("rules", dir))
	upper := fixture.StartProxy(t, top.XDS)
	middle := fixture.StartTributary(t, fixture.Upstream("top", upper.Addr))
	middle.AwaitReady(t)
	middleProxy := fixture.StartProxy(t, middle.XDS)
	opened := onlyStream(t, top)
	bottom := fixture.StartTributary(t, fixture.Upstream("middle", middleProxy.Addr).With("mode", "delta"))
	// The middle does not tell the top that the bottom reads from it: its stream stays.
	top.Await(t, func() error {
		list, err := streams(t, top)
		if err == nil && (len(list) != 1 || list[0].Stream != opened || slices.ContainsFunc(list[0].Types, subscription.waits)) {
			err = fmt.Errorf("the streams are %+v, want %d, with everything acknowledged", list, opened)
		}
		return err
	})
	lower := fixture.StartProxy(t, bottom.XDS)
	istiod := version.Start(t, "xds://"+lower.Addr)
	istiod.AwaitFolders(t, dir)

	chain := []hop{{"tributary to tributary", upper}, {"tributary to tributary, too", middleProxy}, {"tributary to istiod", lower}}
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"one is changed", func() { write(t, dir, "s150.yaml", serviceEntry("s150", 81)) }},
		{"one is added", func() { write(t, dir, "added.yaml", serviceEntry("added", 80)) }},
		{"one is deleted", func() { require.NoError(t, os.Remove(filepath.Join(dir, "s151.yaml"))) }},
	} {
		t.Log(change.name)
		begin := top.Metric(t, "tributary_xds_response_bytes_total", serviceEntries)
		sent := hops(t, chain, func() {
			change.do()
			istiod.AwaitFolders(t, dir)
		})
		for i := range 2 {
			assert.Equal(t, 1, sent[i].Messages)
			assert.Less(t, sent[i].Bytes, 1000)
		}
		assert.Equal(t, 1, sent[2].Messages)
		assert.Equal(t, sent[0].Bytes, top.Metric(t, "tributary_xds_response_bytes_total", serviceEntries)-begin, "the value of the metric")
	}
	versions := map[string]string{}
	for name, tributary := range map[string]*fixture.Tributary{"top": top, "middle": middle, "bottom": bottom} {
		out := tributary.Ask(t, "explain", "se", "shop/s150")
		match := regexp.MustCompile(`version (\S+),`).FindStringSubmatch(out)
		require.Len(t, match, 2, "%s: %s", name, out)
		versions[match[1]] = name
	}
	assert.Len(t, versions, 1, "the version is the same end to end")
}

// move moves the files of a folder into another, one by one.
func move(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return os.Rename(path, filepath.Join(to, rel))
	}))
}

// TestTierRestarts shows that istiod keeps everything while a tributary in the middle of the chain is killed and comes back,
// and that only differences cross both of its connections then.
func TestTierRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fillWith(t, dir, 300)
	top := fixture.StartTributary(t, fixture.Files("rules", dir))
	upper := fixture.StartProxy(t, top.XDS)
	middle := fixture.StartTributary(t, fixture.Upstream("top", upper.Addr))
	lower := fixture.StartProxy(t, middle.XDS)
	bottom := fixture.StartTributary(t, fixture.Upstream("middle", lower.Addr))
	istiod := bottom.StartIstiod(t)
	before := fixture.ReadObjects(t, dir)
	istiod.AwaitConfigs(t, before)
	awaitStored(t, middle, "top", time.Time{})
	unchanged := maps.Clone(before)
	delete(unchanged, fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "s150"})
	delete(unchanged, fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "s151"})
	watch := guard(t, istiod, unchanged)

	middle.Kill()
	awaitState(t, bottom, "middle", "unreachable", true)
	write(t, dir, "s150.yaml", serviceEntry("s150", 81))
	require.NoError(t, os.Remove(filepath.Join(dir, "s151.yaml")))
	top.Await(t, func() error {
		if err := pageNames(t, top, "/debug/configz", "s151")(); err == nil {
			return errors.New("the deletion was not read yet")
		}
		return nil
	})
	sent := hops(t, []hop{{"top to middle, which starts again", upper}, {"middle to bottom, which connects again", lower}}, func() {
		middle.Restart(t)
		middle.AwaitAlive(t)
		istiod.AwaitFolders(t, dir)
	})
	for _, s := range sent {
		assert.Less(t, s.Bytes, 10_000, "of the 65,000 that everything takes")
	}
	watch.stop(t)
}

// onlyStream is the id of the one stream that is open.
func onlyStream(t *testing.T, tributary *fixture.Tributary) (id uint64) {
	t.Helper()
	tributary.Await(t, func() error {
		list, err := streams(t, tributary)
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("the streams are %+v, want one", list)
		}
		if err == nil {
			id = list[0].Stream
		}
		return err
	})
	return id
}

// waits reports whether no response was acknowledged yet.
func (s subscription) waits() bool { return s.Acked.Nonce == "" }

// fillWith writes files with so many ServiceEntries, one in each.
func fillWith(t *testing.T, dir string, objects int) {
	t.Helper()
	for i := range objects {
		name := fmt.Sprintf("s%03d", i)
		write(t, dir, name+".yaml", serviceEntry(name, 80))
	}
}

// hop is a connection on the way of a change.
type hop struct {
	name  string
	proxy *fixture.Proxy
}

// hops counts and logs the traffic on each hop of the chain while the change reaches its end.
func hops(t *testing.T, chain []hop, change func()) []fixture.Traffic {
	t.Helper()
	sent := make([]fixture.Traffic, len(chain))
	for i, h := range chain {
		sent[i] = h.proxy.Sent(t)
	}
	begin := time.Now()
	change()
	took := time.Since(begin)
	for i, h := range chain {
		sent[i] = h.proxy.Sent(t).Minus(sent[i])
		t.Logf("%s: %d messages, %d bytes", h.name, sent[i].Messages, sent[i].Bytes)
	}
	t.Logf("the whole way took %v", took.Round(time.Millisecond))
	return sent
}

// TestMeshConfigOfAnUpstream shows that the mesh configuration of an istiod is read and served on, that an istiod behind it
// gets it and goes on with its own, and that it can be left out.
func TestMeshConfigOfAnUpstream(t *testing.T) {
	t.Parallel()
	const meshConfig = "core/v1alpha1/MeshConfig"
	dir := t.TempDir()
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	first := fixture.NewIstiodWith(t, fmt.Sprintf("rootNamespace: of-the-first\nconfigSources: [{address: %q}]\n", "fs://"+dir))
	first.AwaitSynced(t)
	complete := fixture.StartTributary(t, fixture.Upstream("istiod", first.GRPC))
	partial := fixture.StartTributary(t, fixture.Upstream("istiod", first.GRPC).With("subscribedResources", []string{"ServiceEntry"}))
	last := complete.StartIstiod(t)
	last.AwaitFolders(t, dir)
	partial.AwaitReady(t)

	out, code := fixture.Run(t, fixture.TributaryBinary(t), "get", "meshconfigs", "-A", "-o", "yaml", "--server", complete.XDS)
	require.Zero(t, code)
	require.Contains(t, out, "rootNamespace: of-the-first")
	complete.Await(t, func() error {
		if complete.Metric(t, "tributary_xds_responses_total", meshConfig) < 2 { // the one above, and istiod's
			return errors.New("the last istiod was not sent it")
		}
		return nil
	})
	_, body, err := fixture.Get(t.Context(), "http://"+last.HTTP+"/debug/mesh")
	require.NoError(t, err)
	assert.Contains(t, body, "rootNamespace")
	assert.NotContains(t, body, "of-the-first")

	out, code = fixture.Run(t, fixture.TributaryBinary(t), "get", "meshconfigs", "-A", "-o", "yaml", "--server", partial.XDS)
	require.Zero(t, code)
	assert.NotContains(t, out, "of-the-first")
}
