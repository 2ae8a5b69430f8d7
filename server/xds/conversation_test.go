package xds

import (
	"cmp"
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
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
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
// On a stream of gRPC (testdata/rules), types are thing (without an order), cds, eds, lds, rds, vhds and sds, items are
// those of fixture.set, and the commands are
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
//	nack                                    rejects it
//	version is TEXT, version of KEPT, version not KEPT
//	silence                                 no response comes
//	subscribed all|names N                  waits until the newest stream has such a subscription
//	synced N; nacked N REASON               waits until the only client has acknowledged N responses, or rejects the last
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
	run(command string, words *wordList)
}

// wordList has the arguments of a command.
type wordList struct {
	t    *testing.T
	rest []string
}

// next takes the next word, which is empty after the last one.
func (w *wordList) next() (word string) {
	if len(w.rest) > 0 {
		word, w.rest = w.rest[0], w.rest[1:]
	}
	return word
}

// all takes the other words, after some more.
func (w *wordList) all(before ...string) []string { return append(before, w.rest...) }

func (w *wordList) url() string { return urlOf(w.next()) }

func (w *wordList) number() int {
	n, err := strconv.Atoi(w.next())
	require.NoError(w.t, err)
	return n
}

func (w *wordList) duration() time.Duration {
	d, err := time.ParseDuration(w.next())
	require.NoError(w.t, err)
	return d
}

var typeURLs = map[string]string{
	"thing": testType, "cds": ClusterURL, "eds": EndpointURL, "lds": ListenerURL, "rds": RouteURL, "vhds": VHostURL,
	"sds": SecretURL, "none": "",
}

func urlOf(word string) string {
	if url, ok := typeURLs[word]; ok {
		return url
	}
	return word
}

// holdConversations holds the conversations of files with new speakers.
func holdConversations(t *testing.T, pattern string, newSpeaker func(t *testing.T, delta bool) speaker) {
	for _, section := range conversations(t, pattern) {
		for _, variant := range section.variants {
			for _, each := range append(section.types, "")[:max(len(section.types), 1)] {
				t.Run(strings.TrimSpace(section.name+" "+variant+" "+each), func(t *testing.T) {
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
		now = fmt.Sprintf("%s:%d: %s", c.file, c.line+i, line)
		if only, rest, ok := strings.Cut(line, ": "); ok && (only == "sotw" || only == "delta") {
			if only != variant {
				continue
			}
			line = rest
		}
		if each != "" {
			line = strings.ReplaceAll(line, "each", each)
		}
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			speaker.run(fields[0], &wordList{t, fields[1:]})
		}
	}
}

// TestRules holds the conversations of testdata/rules over gRPC.
func TestRules(t *testing.T) {
	holdConversations(t, "testdata/rules/*", func(t *testing.T, delta bool) speaker {
		return &grpcSpeaker{t: t, delta: delta, clients: map[string]*conversant{}, kept: map[string]xdstest.Answer{}}
	})
}

// grpcSpeaker has a server and its clients.
type grpcSpeaker struct {
	t       *testing.T
	delta   bool
	options Options
	fixture *fixture // made when it is first used
	groups  *groupsFixture
	clients map[string]*conversant
	client  *conversant // the current one
	last    xdstest.Answer
	kept    map[string]xdstest.Answer
}

// conversant is a client, and the names that it subscribed to by type, which its SotW acknowledgements repeat.
type conversant struct {
	*xdstest.Client
	names map[string][]string
}

// server returns the fixture.
func (s *grpcSpeaker) server() *fixture {
	if s.fixture == nil {
		s.fixture = newFixture(s.t, s.options)
	}
	return s.fixture
}

// current returns the client that speaks.
func (s *grpcSpeaker) current() *conversant {
	if s.client == nil {
		s.connect("first", &wordList{t: s.t})
	}
	return s.client
}

func (s *grpcSpeaker) run(command string, words *wordList) {
	s.t.Helper()
	if !s.commit(command, words) && !s.request(command, words) && !s.check(command, words) {
		require.FailNow(s.t, "unknown command "+command)
	}
}

// commit runs the commands of the server's side.
func (s *grpcSpeaker) commit(command string, words *wordList) bool {
	switch command {
	case "ackTimeout":
		s.options.AckTimeout = words.duration()
	case "groups":
		var types []string
		for len(words.rest) > 0 {
			types = append(types, words.url())
		}
		s.groups = newGroupsFixture(s.t, types...)
		s.fixture = s.groups.fixture
	case "byName": // and not by a wildcard
		typ := TypeOf(words.url())
		typ.NoWildcard = true
		s.server().colls[typ.URL] = NewCollection(typ, Debounce{})
	case "debounce":
		url := words.url()
		s.server().colls[url] = NewCollection(TypeOf(url), Debounce{Quiet: words.duration()})
	case "set":
		if group, typ, ok := strings.Cut(words.rest[0], "/"); ok && s.groups != nil {
			s.groups.put(int(group[0]-'0'), urlOf(typ), words.rest[1:]...)
		} else {
			s.server().set(words.url(), words.rest...)
		}
	case "put":
		url, commit := words.url(), Commit{}
		if version, ok := strings.CutPrefix(strings.Join(words.rest, " "), "version="); ok {
			commit.Version, _, _ = strings.Cut(version, " ")
			words.next()
		}
		s.server().fill(&commit, words.rest...)
		s.server().coll(url).Apply(commit)
	case "sync":
		s.server().coll(words.url()).MarkSynced()
	case "together":
		commits := map[*Collection]*Commit{}
		for part := range strings.SplitSeq(strings.Join(words.rest, " "), " and ") {
			items, commit := strings.Fields(part), &Commit{}
			s.server().fill(commit, items[1:]...)
			commits[s.server().coll(urlOf(items[0]))] = commit
		}
		s.server().group.Apply(commits)
	case "hold":
		s.server().onlyStream().mu.Lock()
	case "release":
		s.server().onlyStream().mu.Unlock()
	case "move":
		s.groups.move(int64(words.number()))
	case "choose":
		s.groups.group.Store(int64(words.number()))
	default:
		return false
	}
	return true
}

// connect makes a client the current one.
func (s *grpcSpeaker) connect(name string, words *wordList) {
	if s.client = s.clients[name]; s.client == nil {
		single := ""
		if words.next() == "of" {
			single = words.url()
		}
		s.client = &conversant{s.server().dialService(s.delta, single), map[string][]string{}}
		s.clients[name] = s.client
	}
}

// request runs the commands of the client's side.
func (s *grpcSpeaker) request(command string, words *wordList) bool {
	switch command {
	case "client":
		s.connect(words.next(), words)
	case "ask":
		client, url := s.current(), words.url()
		client.names[url] = words.all()
		client.Ask(url, words.rest...)
	case "send":
		s.send(words.url(), words)
	case "ack":
		answer := s.last
		if strings.HasPrefix(strings.Join(words.rest, " "), "@") {
			answer = s.kept[words.next()[1:]]
		}
		names := words.all()
		if len(names) == 0 {
			names = s.client.names[answer.TypeURL]
		} else if names[0] == "none" {
			names = nil
		}
		s.client.names[answer.TypeURL] = names
		s.client.Ack(answer, names...)
	case "nack":
		s.client.Nack(s.last, "no", s.client.names[s.last.TypeURL]...)
	default:
		return false
	}
	return true
}

// send sends a request with keys.
func (s *grpcSpeaker) send(url string, words *wordList) {
	client, fields, names := s.current(), map[string]string{}, []string(nil)
	for _, word := range words.rest {
		if key, value, ok := strings.Cut(word, "="); ok {
			fields[key] = value
		} else {
			names = append(names, word)
		}
	}
	client.names[url] = names
	version := cmp.Or(s.kept[fields["version"]].Version, fields["version"])
	if version == "current" {
		version = s.server().coll(url).Version()
	}
	nonce := fields["nonce"]
	if nonce == "last" {
		nonce = s.last.Nonce
	}
	if !client.Delta {
		client.Send(&discoveryv3.DiscoveryRequest{
			TypeUrl: url, VersionInfo: version, ResponseNonce: nonce, ResourceNames: names,
		})
		return
	}
	versions := map[string]string{}
	for item := range strings.SplitSeq(fields["has"], ",") {
		if name, version, ok := strings.Cut(item, "@"); ok {
			versions[name] = version
		}
	}
	client.Send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: url, ResponseNonce: nonce, ResourceNamesSubscribe: names, InitialResourceVersions: versions,
	})
}

// check runs the commands that check something.
func (s *grpcSpeaker) check(command string, words *wordList) bool {
	client := s.current()
	switch command {
	case "gets":
		s.last = client.Expect(words.url(), words.all()...)
	case "takes":
		s.last = client.Expect(words.url(), words.all()...)
		client.Ack(s.last, client.names[s.last.TypeURL]...)
	case "unknown":
		require.Equal(s.t, words.rest, s.last.Unknown)
	case "keep":
		s.kept[words.next()] = s.last
	case "version":
		switch relation, text := words.next(), words.next(); relation {
		case "is":
			require.Equal(s.t, text, s.last.Version)
		case "of":
			require.Equal(s.t, s.kept[text].Version, s.last.Version)
		default:
			require.NotEqual(s.t, s.kept[text].Version, s.last.Version)
		}
	case "silence":
		client.Silence()
	case "subscribed":
		s.server().awaitSubscription(words.next() == "all", words.number())
	case "users":
		n := int64(words.number())
		eventually(s.t, func() bool { return s.groups.held.Load() == n })
	case "synced", "nacked":
		responses, reason := words.number(), words.next()
		eventually(s.t, func() bool {
			clients := s.server().server.Clients()
			if len(clients) != 1 || len(clients[0].Types) != 1 {
				return false
			}
			status := clients[0].Types[0]
			return int(status.Responses) == responses && //nolint:gosec // few
				(status.Synced && command == "synced" || !status.Synced && command == "nacked" && status.NackError == reason)
		})
	case "ended":
		require.Equal(s.t, words.next(), grpcstatus.Code(client.Ended()).String())
	default:
		return false
	}
	return true
}

// TestOrderedRules holds the conversations of testdata/clock, with a clock and without a network.
func TestOrderedRules(t *testing.T) {
	holdConversations(t, "testdata/clock/*", func(t *testing.T, delta bool) speaker {
		return &clockedSpeaker{nil, t, delta}
	})
}

// clockedSpeaker has a talk, which is made when it is first used.
type clockedSpeaker struct {
	*talk
	t     *testing.T
	delta bool
}

func (s *clockedSpeaker) run(command string, words *wordList) {
	s.t.Helper()
	if s.talk == nil {
		s.talk = newTalk(s.t, s.delta, command == "wildcard")
	}
	switch command {
	case "wildcard":
	case "swap":
		s.swap(words.next())
	case "put":
		url, commit := words.url(), Commit{}
		(&fixture{t: s.t}).fill(&commit, words.rest...)
		s.colls[url].Apply(commit)
	case "ask":
		s.ask(words.url(), words.all()...)
	case "gets":
		s.hear(words.url(), words.all()...)
	case "takes":
		s.hear(words.url(), words.all()...)
		s.ack()
	case "ack":
		s.ack()
	case "nack":
		s.answer(&rpcstatus.Status{Message: "unknown version"})
	case "rest":
		s.rest()
	case "waits":
		if wait := s.waits(); len(words.rest) > 0 {
			require.Equal(s.t, words.duration(), wait)
		} else {
			require.Positive(s.t, wait)
		}
	case "pass":
		s.pass(words.duration())
	case "pacing":
		s.server.opts.Pacing = Pacing{Least: words.duration()}
	case "names":
		s.types[words.url()].names = set(words.all())
	case "reconnect":
		versions := s.versions()
		if words.next() == "unknown" {
			versions = map[string]string{ClusterURL: "x", EndpointURL: "y", RouteURL: "z"}
		}
		var urls []string
		for word := range strings.SplitSeq(words.next(), ",") {
			urls = append(urls, urlOf(word))
		}
		s.reconnect(versions, urls...)
	case "getsAll":
		want := map[string][]string{EndpointURL: {}}
		for _, word := range words.rest {
			typ, item, _ := strings.Cut(word, ":")
			want[urlOf(typ)] = append(want[urlOf(typ)], item)
		}
		s.hearAny(want)
	default:
		require.FailNow(s.t, "unknown command "+command)
	}
}
