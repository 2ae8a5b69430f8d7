package dubbo

import (
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestConversations runs the scripts of testdata: providers register in a ZooKeeper, and a source serves them. A number
// in the name of a script is that of a rule in docs/proofs.md.
func TestConversations(t *testing.T) {
	testutil.Scripts(t, "testdata/*.txtar", func(t *testing.T) func(command, want string) string {
		conversation := conversation{T: t, server: zktest.New()}
		return conversation.answer
	})
}

// conversation is a ZooKeeper and a source that reads it. Its commands:
//
//	start SETTINGS                           a source begins; settings are quick or patient, and name=value
//	restart SETTINGS: DEED; DEED             the next process, after deeds
//	register PROVIDER, unregister PROVIDER   as nodeOf reads it
//	configure RULE, withdraw RULE            a configurator of the interface in its path
//	application NAME ADDRESS REVISION SERVICE…   an instance with metadata in the report
//	instance NAME ADDRESS REVISION           without
//	report NAME REVISION SERVICE…            the metadata
//	put PATH [CONTENT], delete PATH, deny PATH, allow PATH, mute PATH
//	cut, expire, refuse, reconnect           the session
//	serves                                   waits until the source serves the answer
//	still                                    the answer is served now
//	synced, state STATE, message PART, says MESSAGE   waits for the status
//	left out                                 waits until the instances of the answer are left out
//	warnings                                 the number of warnings
//	held N                                   waits until N endpoints stay because a part cannot be read
//	unresolved                               waits until a lookup of an instance's services has failed
type conversation struct {
	*testing.T

	server     *zktest.Server
	rig        *rig
	unresolved float64 // failed lookups that a command waited for
}

func (c *conversation) answer(command, want string) string {
	c.Helper()
	name, text, _ := strings.Cut(command, " ")
	words := strings.Fields(text)
	switch name {
	case "start":
		c.rig, c.unresolved = start(c.T, c.server, settingsOf(c.T, words)), 0
	case "restart":
		settings, deeds, _ := strings.Cut(text, ":")
		c.unresolved = 0
		c.rig.restart(settingsOf(c.T, strings.Fields(settings)), func() {
			for deed := range strings.SplitSeq(deeds, ";") {
				c.answer(strings.TrimSpace(deed), "")
			}
		})
	case "serves":
		c.rig.awaitAll(linesOf(want)...)
		return want
	case "still":
		return strings.Join(append(c.rig.show(), ""), "\n")
	case "state":
		c.rig.Await("it is "+text, func() bool { return c.rig.Status().State.String() == text })
	case "message":
		c.rig.awaitMessage(text)
	case "says":
		c.rig.Await("it says "+text, func() bool { return c.rig.Status().Message == text })
	case "synced":
		c.rig.AwaitSync()
	case "left":
		c.rig.awaitLeftOut(linesOf(want)...)
		return want
	case "warnings":
		return strconv.Itoa(len(c.rig.Status().Warnings)) + "\n"
	case "held":
		count, err := strconv.Atoi(text)
		require.NoError(c, err)
		c.rig.awaitHeld(count)
	case "unresolved":
		count := c.rig.source.counters.unresolved.Value
		c.rig.Await("a lookup failed", func() bool { return float64(count()) > c.unresolved })
		c.unresolved = float64(count())
	default:
		c.change(name, text, words)
	}
	return ""
}

// change changes the content of the server, or its session.
func (c *conversation) change(name, text string, words []string) {
	c.Helper()
	switch name {
	case "":
	case "register":
		register(c.server, text)
	case "unregister":
		unregister(c.server, text)
	case "configure":
		c.server.Put(configurator(c.T, text), leaf)
	case "withdraw":
		c.server.Delete(configurator(c.T, text))
	case "application":
		applicationOf(c.server, words[0], words[1], words[2], words[3:]...)
	case "instance":
		instanceOf(c.server, words[0], words[1], words[2])
	case "report":
		report(c.server, "/dubbo/metadata", words[0], words[1], words[2:]...)
	case "put":
		path, content, hasContent := strings.Cut(text, " ")
		if !hasContent {
			content = leaf
		}
		c.server.Put(path, content)
	default:
		run := map[string]func(){
			"cut": c.server.Cut, "expire": c.server.Expire, "refuse": c.server.Refuse, "reconnect": c.server.Reconnect,
			"delete": func() { c.server.Delete(text) },
			"deny":   func() { c.server.Deny(text) },
			"allow":  func() { c.server.Allow(text) },
			"mute":   func() { c.server.Mute(text) },
		}[name]
		require.NotNil(c, run, "no such command: %s", name)
		run()
	}
}

func linesOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// configurator is the path of a rule.
func configurator(t *testing.T, rule string) string {
	t.Helper()
	parsed, err := url.Parse(rule)
	require.NoError(t, err)
	return "/dubbo" + parsed.Path + "/configurators/" + url.QueryEscape(rule)
}

func settingsOf(t *testing.T, words []string) Settings {
	t.Helper()
	settings := quickly()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		duration, _ := time.ParseDuration(value)
		switch name {
		case "quick":
		case "patient":
			settings = patiently()
		case "hold":
			settings.Hold = duration
		case "keepEmpty":
			settings.KeepEmpty = duration
		case "grace":
			settings.Grace = duration
		case "sidecars":
			settings = withSidecars(duration)
		case "interfaces":
			settings.Interfaces = []string{value}
		case "skipInterfaces":
			settings.SkipInterfaces = []string{value}
		case "registerMode":
			settings.RegisterMode = value
		default:
			require.Fail(t, "no such setting", word)
		}
	}
	return settings
}
