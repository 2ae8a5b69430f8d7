package file

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
)

// hampered blocks the parsing of every file that contains a word until release is called.
func (l *live) hampered(word string) (release func()) {
	gate := make(chan struct{})
	l.patience = 20 * time.Millisecond
	l.parse = func(
		group, place string, text []byte, o resource.Options, earlier *resource.DecodeCache,
	) (sources.Content, *resource.DecodeCache) {
		if strings.Contains(string(text), word) {
			<-gate
		}
		return sources.DecodeIncremental(group, place, text, o, earlier)
	}
	return func() { close(gate) }
}

func TestSlowFile_DoesNotBlockOthers(t *testing.T) {
	live := prepare(t)
	release := live.hampered("slow.example.com")
	live.write("a.yaml", "a=a1.example.com")
	live.write("b.yaml", "b=b1.example.com")
	live.startSynced()
	for range 20 { // more than there are processors
		live.write("a.yaml", "a=slow.example.com", "c=c1.example.com")
	}
	q := live.awaitQuarantined(1)[0]
	require.Equal(t, "a.yaml", q.Group)
	require.Contains(t, q.Reason, "takes long")
	live.AwaitState(sources.Degraded, live.path("a.yaml"), "takes long")
	for _, host := range []string{"b2.example.com", "b3.example.com"} {
		live.write("b.yaml", entry("b", host))
		live.awaitHost("b", host)
	}
	require.Equal(t, "a1.example.com", live.host("a"), "its last good version")
	live.AwaitState(sources.Degraded, live.path("a.yaml"), "takes long")
	release()
	live.awaitHost("a", "slow.example.com")
	live.awaitHost("c", "c1.example.com")
	live.awaitQuarantined(0)
	live.AwaitState(sources.Healthy)
	live.neverDeleted("a", "b")
}

func TestSlowFile_DoesNotBlockStart(t *testing.T) {
	live := prepare(t)
	release := live.hampered("slow.example.com")
	defer release()
	live.write("a.yaml", "a=slow.example.com")
	live.write("b.yaml", "b=b1.example.com")
	live.startSynced()
	require.Equal(t, "b1.example.com", live.host("b"))
	live.awaitQuarantined(1)
}

func TestSlowFile_ChangesDuringParse(t *testing.T) {
	for name, change := range map[string]func(l *live){
		"rewritten": func(l *live) { l.write("a.yaml", "a=a2.example.com") },
		"removed":   func(l *live) { l.remove("a.yaml") },
	} {
		t.Run(name, func(t *testing.T) {
			l := prepare(t)
			release := l.hampered("slow.example.com")
			l.write("a.yaml", "a=a1.example.com")
			l.write("b.yaml", "b=b1.example.com")
			l.startSynced()
			l.write("a.yaml", "a=slow.example.com")
			l.awaitQuarantined(1)
			change(l)
			l.change("b.yaml", "b=b2.example.com")
			release()
			if name == "removed" {
				l.awaitHost("a", "")
			} else {
				l.awaitHost("a", "a2.example.com")
			}
			l.awaitQuarantined(0)
			l.AwaitState(sources.Healthy)
		})
	}
}

func TestSlowFile_DoesNotBlockStop(t *testing.T) {
	live := prepare(t)
	release := live.hampered("slow.example.com")
	defer release()
	live.write("a.yaml", "a=slow.example.com")
	live.write("b.yaml", "b=b.example.com")
	live.startSynced()
	live.awaitQuarantined(1)
	live.Stop()
}

func TestSlowFiles_ServedAfterRelease(t *testing.T) {
	live := prepare(t)
	release := live.hampered("slow.example.com")
	live.write("zzz.yaml", "z=z1.example.com")
	for i := range maxReplaced {
		live.write(string(rune('a'+i))+".yaml", entry(string(rune('a'+i))+"x", "slow.example.com"))
	}
	live.startSynced()
	require.Equal(t, "z1.example.com", live.host("z"))
	live.awaitQuarantined(maxReplaced)
	release()
	live.awaitQuarantined(0)
	require.Equal(t, maxReplaced+1, live.table.Snapshot().Len())
}

// A mount that hangs has more files that never come than workers may be replaced for: neither the end nor a reload
// waits for them, others are read, and when the mount is back so are they.
func TestHangingMount_DoesNotBlockSource(t *testing.T) {
	t.Parallel()
	hang := func(l *live) (release func()) {
		l.patience = 20 * time.Millisecond
		release = l.hampered("slow")
		for i := range maxReplaced + 4 {
			l.write(fmt.Sprintf("f%02d.yaml", i), "# slow\n"+entry(fmt.Sprintf("f%02d", i), "f.example.com"))
		}
		l.write("z.yaml", "z=z.example.com")
		return release
	}
	t.Run("does not block other files", func(t *testing.T) {
		l := prepare(t)
		release := hang(l)
		l.startWith(Settings{RescanInterval: 100 * time.Millisecond})
		l.awaitHost("z", "z.example.com")
		release()
		l.Await("all are served", func() bool { return l.table.Snapshot().Len() == maxReplaced+5 })
	})
	t.Run("does not hold up the end", func(t *testing.T) {
		l := prepare(t)
		release := hang(l)
		l.start()
		l.Await("some are late", func() bool { return len(l.Supervisor.Status()[0].Quarantined) > 0 })
		l.Stop()
		release()
	})
	t.Run("does not hold up a reload", func(t *testing.T) {
		l := prepare(t)
		release := hang(l)
		l.start()
		l.Await("some are late", func() bool { return len(l.Supervisor.Status()[0].Quarantined) > 0 })
		require.NoError(t, l.Supervisor.Reconfigure(nil))
		release()
	})
}

// A file that makes the decoder panic is quarantined, and does not affect others.
func TestPanickingFile_Quarantined(t *testing.T) {
	l := prepare(t)
	l.parse = func(
		group, place string, text []byte, o resource.Options, earlier *resource.DecodeCache,
	) (sources.Content, *resource.DecodeCache) {
		if strings.Contains(string(text), "panic.example.com") {
			panic("as wanted")
		}
		return sources.DecodeIncremental(group, place, text, o, earlier)
	}
	l.write("a.yaml", "a=a1.example.com")
	l.write("b.yaml", "b=b1.example.com")
	l.startSynced()
	l.write("a.yaml", "a=panic.example.com")
	l.change("b.yaml", "b=b2.example.com")
	require.Contains(t, l.awaitQuarantined(1)[0].Reason, "panic: as wanted")
	require.Equal(t, "a1.example.com", l.host("a"))
	l.AwaitState(sources.Degraded, "a.yaml: panic: as wanted")
}
