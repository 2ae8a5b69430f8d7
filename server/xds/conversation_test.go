package xds

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	grpcstatus "google.golang.org/grpc/status"

	"tributary/internal/xdstest"
)

// A conversation is a test of one rule of the protocol: the lines of a section of testdata. A section begins with
//
//	== VARIANT: NAME                       sotw, delta or both
//	== VARIANT for TYPE TYPE: NAME         once for each type, which is called "each" in the lines
//
// A line that begins with "sotw:" or "delta:" is for this variant only.
//
// On a stream of gRPC (testdata/rules), types are thing (without an order), cds, eds, lds, rds and vhds, items are those
// of fixture.set, and the commands are
//
//	ackTimeout DURATION, groups TYPE...     at the beginning: the server's option; two groups of collections
//	set TYPE ITEM...                        commits, and marks the type as synced; in a group: set 1/TYPE
//	put TYPE ITEM...; sync TYPE             the two steps of set; put version=V: of the collection
//	together TYPE ITEM... and TYPE ITEM...  commits to several types at once
//	hold; release                           stops the server from looking at the collections
//	byName TYPE; debounce TYPE DURATION     replaces the collection of a type
//	choose GROUP; move GROUP                new clients, or all clients, see another group
//	users N                                 so many collections of groups are in use
//	client NAME [VARIANT] [of TYPE]         goes on with another client, of the service of a single type
//	ask TYPE NAME...                        a request; in delta, "-NAME" unsubscribes
//	send TYPE [KEY=VALUE]... NAME...        another one; keys are nonce, version and has (a@1,b@1)
//	gets TYPE ITEM...                       the next response
//	takes TYPE ITEM...                      gets, and ack
//	unknown NAME...                         that response has aliases of missing names
//	keep NAME                               keeps that response
//	ack [@KEPT] [NAME...]                   acknowledges it; in SotW, "ack none" has no names, and "ack" those of before
//	version is TEXT, version of KEPT, version not KEPT
//	silence                                 no response comes
//	subscribed all|names N                  waits until the newest stream has such a subscription
//	ended CODE                              the stream ends
//
// On a stream without a network (testdata/clock), which has a clock of its own, types are cds, eds and rds, and the
// commands are ask, gets, takes and ack, and
//
//	wildcard                                at the beginning: the client has subscribed to all clusters
//	swap VERSION                            changes the route, and deletes the other clusters
//	put TYPE ITEM...                        commits
//	pacing DURATION                         of changes
//	nack                                    rejects the last response
//	waits [DURATION]; rest                  nothing is due for so long; nothing is due at all
//	pass DURATION                           the clock goes on
//	names TYPE NAME...                      changes the names of the first request after
//	reconnect unknown|served TYPE,TYPE...   comes back with unknown versions, or with those of before
//	getsAll TYPE:ITEM...                    the next responses, in any order
type conversation struct {
	file     string
	line     int // of the first command
	name     string
	variants []string
	types    []string // nil without any
	commands []string
}

var sectionTitle = regexp.MustCompile(`^== (sotw|delta|both)(?: for ([\w, ]+))?: (.*)$`)

func conversations(t *testing.T, pattern string) (sections []conversation) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			if title := sectionTitle.FindStringSubmatch(line); title != nil {
				variants := []string{title[1]}
				if title[1] == "both" {
					variants = []string{"sotw", "delta"}
				}
				sections = append(sections, conversation{file, i + 2, title[3], variants, strings.Fields(title[2]), nil})
				continue
			}
			if len(sections) > 0 && sections[len(sections)-1].file == file {
				last := &sections[len(sections)-1]
				last.commands = append(last.commands, line)
				continue
			}
			require.True(t, line == "" || line[0] == '#', "%s:%d: %s", file, i+1, line)
		}
	}
	return sections
}

// speaker runs commands.
type speaker interface {
	run(command string, arguments []string)
}

// holdConversations holds the conversations of files with new speakers.
func holdConversations(t *testing.T, pattern string, newSpeaker func(t *testing.T, delta bool) speaker) {
	for _, section := range conversations(t, pattern) {
		for _, variant := range section.variants {
			for _, each := range append(section.types, "")[:max(len(section.types), 1)] {
				name := strings.Join(strings.Fields(section.name+" "+variant+" "+each), " ")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					section.hold(t, newSpeaker(t, variant == "delta"), variant, each)
				})
			}
		}
	}
}

func (c *conversation) hold(t *testing.T, speaker speaker, variant, each string) {
	now := ""
	defer func() {
		if t.Failed() {
			t.Log(now)
		}
	}()
	for i, line := range c.commands {
		if of, rest, ok := strings.Cut(line, ": "); ok && (of == "sotw" || of == "delta") {
			if of != variant {
				continue
			}
			line = rest
		}
		if each != "" {
			line = strings.ReplaceAll(line, "each", each)
		}
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			now = fmt.Sprintf("%s:%d: %s", c.file, c.line+i, line)
			speaker.run(words[0], words[1:])
		}
	}
}

// TestRules holds the conversations of testdata/rules over gRPC.
func TestRules(t *testing.T) {
	holdConversations(t, "testdata/rules/*", func(t *testing.T, delta bool) speaker {
		return &speakerOverGRPC{t: t, delta: delta, clients: map[string]*conversant{}, kept: map[string]xdstest.Answer{}}
	})
}

var typeURLs = map[string]string{
	"thing": testType, "cds": ClusterURL, "eds": EndpointURL, "lds": ListenerURL, "rds": RouteURL, "vhds": VHostURL, "none": "",
}

func urlOf(word string) string {
	if url, ok := typeURLs[word]; ok {
		return url
	}
	return word
}

// speakerOverGRPC has a server and its clients.
type speakerOverGRPC struct {
	t       *testing.T
	delta   bool
	options Options
	fixture *fixture // made when it is first used
	groups  *groupsFixture
	clients map[string]*conversant
	client  *conversant // the current one
	last    xdstest.Answer
	kept    map[string]xdstest.Answer
	release func()
}

// conversant is a client, and the names that it subscribed to by type, which its SotW acknowledgements repeat.
type conversant struct {
	*xdstest.Client
	names map[string][]string
}

// server returns the fixture.
func (s *speakerOverGRPC) server() *fixture {
	if s.fixture == nil {
		s.fixture = newFixture(s.t, s.options)
	}
	return s.fixture
}

// collections returns the fixture with the collections of a group, and the type of a word like 1/cds or cds.
func (s *speakerOverGRPC) collections(word string) (*fixture, string) {
	if group, typ, ok := strings.Cut(word, "/"); ok && s.groups != nil {
		n, err := strconv.Atoi(group)
		require.NoError(s.t, err)
		return &fixture{t: s.t, colls: s.groups.groups[n]}, urlOf(typ)
	}
	return s.server(), urlOf(word)
}

// current returns the client that speaks.
func (s *speakerOverGRPC) current() *conversant {
	if s.client == nil {
		s.run("client", []string{"first"})
	}
	return s.client
}

func (s *speakerOverGRPC) run(command string, arguments []string) {
	s.t.Helper()
	first, rest := "", []string(nil)
	if len(arguments) > 0 {
		first, rest = arguments[0], append(rest, arguments[1:]...)
	}
	if !s.commit(command, first, rest) && !s.request(command, first, rest) && !s.check(command, first, rest) {
		require.FailNow(s.t, "unknown command "+command)
	}
}

// commit runs the commands of the server's side.
func (s *speakerOverGRPC) commit(command, first string, rest []string) bool {
	switch command {
	case "ackTimeout":
		timeout, err := time.ParseDuration(first)
		require.NoError(s.t, err)
		s.options.AckTimeout = timeout
	case "groups":
		types := []string{urlOf(first)}
		for _, word := range rest {
			types = append(types, urlOf(word))
		}
		s.groups = newGroupsFixture(s.t, types...)
		s.fixture = s.groups.fixture
	case "set":
		fixture, url := s.collections(first)
		fixture.set(url, rest...)
	case "put":
		fixture, url := s.collections(first)
		commit := Commit{}
		if len(rest) > 0 {
			if version, ok := strings.CutPrefix(rest[0], "version="); ok {
				commit.Version, rest = version, rest[1:]
			}
		}
		fixture.fill(&commit, rest...)
		fixture.coll(url).Apply(commit)
	case "sync":
		s.server().coll(urlOf(first)).MarkSynced()
	case "together":
		commits, typ := map[*Collection]*Commit{}, first
		for _, part := range strings.Split(strings.Join(rest, " "), " and ") {
			words := strings.Fields(part)
			if len(commits) > 0 {
				typ, words = words[0], words[1:]
			}
			commit := &Commit{}
			s.server().fill(commit, words...)
			commits[s.server().coll(urlOf(typ))] = commit
		}
		s.server().group.Apply(commits)
	case "hold":
		stream := s.server().onlyStream()
		stream.mu.Lock()
		s.release = stream.mu.Unlock
	case "release":
		s.release()
	case "byName": // and not by a wildcard
		typ := TypeOf(urlOf(first))
		typ.NoWildcard = true
		s.server().colls[typ.URL] = NewCollection(typ, Debounce{})
	case "debounce":
		quiet, err := time.ParseDuration(rest[0])
		require.NoError(s.t, err)
		s.server().colls[urlOf(first)] = NewCollection(TypeOf(urlOf(first)), Debounce{Quiet: quiet})
	case "move", "choose":
		group, err := strconv.ParseInt(first, 10, 64)
		require.NoError(s.t, err)
		if s.groups.group.Store(group); command == "move" {
			s.groups.server.Review()
		}
	default:
		return false
	}
	return true
}

// request runs the commands of the client's side.
func (s *speakerOverGRPC) request(command, first string, rest []string) bool {
	switch command {
	case "client":
		if s.client = s.clients[first]; s.client != nil {
			return true
		}
		delta, single := s.delta, ""
		for i, word := range rest {
			switch {
			case word == "sotw" || word == "delta":
				delta = word == "delta"
			case word == "of":
				single = urlOf(rest[i+1])
			}
		}
		s.client = &conversant{s.server().dialService(delta, single), map[string][]string{}}
		s.clients[first] = s.client
	case "ask":
		client := s.current()
		client.names[urlOf(first)] = rest
		client.Ask(urlOf(first), rest...)
	case "send":
		s.send(urlOf(first), rest)
	case "ack":
		client, answer := s.current(), s.last
		names := rest
		if kept, ok := strings.CutPrefix(first, "@"); ok {
			answer = s.kept[kept]
		} else if first != "" {
			names = append([]string{first}, rest...)
		}
		switch {
		case len(names) == 0:
			names = client.names[answer.TypeURL]
		case names[0] == "none":
			names = nil
		}
		client.names[answer.TypeURL] = names
		client.Ack(answer, names...)
	default:
		return false
	}
	return true
}

// send sends a request with keys.
func (s *speakerOverGRPC) send(url string, words []string) {
	client, fields, names := s.current(), map[string]string{}, []string(nil)
	for _, word := range words {
		if key, value, ok := strings.Cut(word, "="); ok {
			fields[key] = value
		} else {
			names = append(names, word)
		}
	}
	client.names[url] = names
	version := fields["version"]
	if version == "current" {
		version = s.server().coll(url).Version()
	} else if answer, ok := s.kept[version]; ok {
		version = answer.Version
	}
	if !client.Delta {
		client.Send(&discoveryv3.DiscoveryRequest{
			TypeUrl: url, VersionInfo: version, ResponseNonce: fields["nonce"], ResourceNames: names,
		})
		return
	}
	versions := map[string]string{}
	for item := range strings.SplitSeq(fields["has"], ",") {
		if name, version, ok := strings.Cut(item, "@"); ok {
			versions[name] = version
		}
	}
	nonce := fields["nonce"]
	if nonce == "last" {
		nonce = s.last.Nonce
	}
	client.Send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: url, ResponseNonce: nonce, ResourceNamesSubscribe: names, InitialResourceVersions: versions,
	})
}

// check runs the commands that check something.
func (s *speakerOverGRPC) check(command, first string, rest []string) bool {
	switch command {
	case "gets":
		s.last = s.current().Expect(urlOf(first), rest...)
	case "takes":
		s.last = s.current().Expect(urlOf(first), rest...)
		s.current().Ack(s.last, s.current().names[s.last.TypeURL]...)
	case "unknown":
		require.Equal(s.t, append([]string{first}, rest...), s.last.Unknown)
	case "keep":
		s.kept[first] = s.last
	case "version":
		switch first {
		case "is":
			require.Equal(s.t, rest[0], s.last.Version)
		case "of":
			require.Equal(s.t, s.kept[rest[0]].Version, s.last.Version)
		default:
			require.NotEqual(s.t, s.kept[rest[0]].Version, s.last.Version)
		}
	case "silence":
		s.current().Silence()
	case "subscribed":
		names, err := strconv.Atoi(rest[0])
		require.NoError(s.t, err)
		s.server().awaitSubscription(first == "all", names)
	case "users":
		n, err := strconv.ParseInt(first, 10, 64)
		require.NoError(s.t, err)
		eventually(s.t, func() bool { return s.groups.held.Load() == n })
	case "ended":
		require.Equal(s.t, first, grpcstatus.Code(s.current().Ended()).String())
	default:
		return false
	}
	return true
}

// TestOrderedRules holds the conversations of testdata/clock, with a clock and without a network.
func TestOrderedRules(t *testing.T) {
	holdConversations(t, "testdata/clock/*", func(t *testing.T, delta bool) speaker { return &clockedSpeaker{t: t, delta: delta} })
}

// clockedSpeaker has a talk.
type clockedSpeaker struct {
	t     *testing.T
	delta bool
	talk  *talk // made when it is first used
}

func (s *clockedSpeaker) run(command string, arguments []string) {
	s.t.Helper()
	if s.talk == nil {
		s.talk = newTalk(s.t, s.delta, command == "wildcard")
	}
	first, rest := "", []string(nil)
	if len(arguments) > 0 {
		first, rest = arguments[0], append(rest, arguments[1:]...)
	}
	url, k := urlOf(first), s.talk
	duration := func() time.Duration {
		d, err := time.ParseDuration(first)
		require.NoError(s.t, err)
		return d
	}
	switch command {
	case "wildcard":
	case "swap":
		k.swap(first)
	case "put":
		commit := Commit{}
		(&fixture{t: s.t}).fill(&commit, rest...)
		k.colls[url].Apply(commit)
	case "pacing":
		k.server.opts.Pacing = Pacing{Least: duration()}
	case "ask":
		k.ask(url, rest...)
	case "gets":
		k.hear(url, rest...)
	case "takes":
		k.hear(url, rest...)
		k.ack()
	case "ack":
		k.ack()
	case "nack":
		k.nack()
	case "waits":
		if first == "" {
			require.Positive(s.t, k.waits())
		} else {
			require.Equal(s.t, duration(), k.waits())
		}
	case "pass":
		k.pass(duration())
	case "reconnect":
		versions := k.versions()
		if first == "unknown" {
			versions = map[string]string{ClusterURL: "x", EndpointURL: "y", RouteURL: "z"}
		}
		var urls []string
		for word := range strings.SplitSeq(rest[0], ",") {
			urls = append(urls, urlOf(word))
		}
		k.reconnect(versions, urls...)
	case "rest":
		k.rest()
	case "names": // that the client wants when it reconnects
		k.types[url].names = set(rest)
	case "getsAll":
		want := map[string][]string{EndpointURL: {}}
		for _, word := range arguments {
			typ, item, _ := strings.Cut(word, ":")
			want[urlOf(typ)] = append(want[urlOf(typ)], item)
		}
		k.hearAny(want)
	default:
		require.FailNow(s.t, "unknown command "+command)
	}
}
