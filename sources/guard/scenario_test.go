package guard

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/testutil"
	"tributary/internal/words"
	"tributary/resource"
)

var _ = flag.Bool("update", false, "write the answers of testdata")

const ap, vs = resource.AuthorizationPolicy, resource.VirtualService

// scenario is a guard whose source follows a script. An answer ends with the size of the table and the hold. The
// commands are:
//
//	guard [share=N] [min=N] [holdFor=D] [off]   a new guard of an empty table
//	settings …                                  other settings
//	commit CHANGES, explained CHANGES           a change of the source: +OBJECTS, -OBJECTS, and !OBJECTS withdrawn
//	wait D                                      time passes, and a hold ends that is due
//	restart [off], read                         the next process begins; it has read the source
//	release [HOLD]                              somebody releases the hold, or the hold of this number
//	served, changed                             the endpoints of s0; the keys whose loss changed
//	repeat M-N: COMMAND; COMMAND                # is the number of the round
//
// Objects are s (services), a and v (policies of two kinds), with numbers: s0-9*3 are ten services with three endpoints
// each. s0=10.0.0.1-40,10.0.1.1/v1 has these addresses, one with a version; other parts are "dns" and "selector".
type scenario struct {
	*testing.T
	*rig

	holds []string // IDs, in order
}

// TestRules has a script for each rule, by the name that it has in docs/proofs.md.
func TestRules(t *testing.T) { runScripts(t, "testdata/rules.txtar") }

func TestScenarios(t *testing.T) { runScripts(t, "testdata/scenarios.txtar") }

// TestRules_AreDocumented holds that docs/proofs.md has each rule once.
func TestRules_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/proofs.md")
	require.NoError(t, err)
	var rows, names []string
	for _, m := range regexp.MustCompile(`(?m)\| TestRules/([^|]*) \|$`).FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, m[1])
	}
	archive, err := txtar.ParseFile("testdata/rules.txtar")
	require.NoError(t, err)
	for _, script := range archive.Files {
		names = append(names, script.Name)
	}
	require.ElementsMatch(t, names, rows)
}

// runScripts runs the scripts of an archive.
func runScripts(t *testing.T, path string) {
	t.Helper()
	testutil.Scripts(t, path, func(t *testing.T) func(command, want string) string {
		scenario := scenario{T: t}
		return func(command, _ string) string { return scenario.answer(command) }
	})
}

// answer runs a command.
func (s *scenario) answer(command string) string {
	name, text, _ := strings.Cut(command, " ")
	result := ""
	switch name {
	case "guard":
		s.rig, s.holds = newRig(settingsOf(s.T, text), 0, 0), nil
	case "settings":
		s.Configure(settingsOf(s.T, text))
	case "commit", "explained":
		s.apply(s.Judge(s.moment(), commitOf(s.T, text, name == "explained")))
	case "wait":
		duration, err := time.ParseDuration(text)
		require.NoError(s, err)
		s.clock = s.clock.Add(duration)
		s.EndDue()
	case "restart":
		s.settings.Off = text == "off"
		s.restart(s)
	case "read":
		s.MarkRead()
	case "release":
		result = s.released(text)
	case "served":
		return strings.Join(ranges(s.served()), " ") + "\n"
	case "changed":
		_, keys := s.TakeEvents()
		slices.SortFunc(keys, resource.Key.Compare)
		var names []string
		for _, key := range slices.Compact(keys) {
			number, err := strconv.Atoi(key.Name[1:])
			require.NoError(s, err)
			names = append(names, strings.ToLower(string(key.Kind[:1]))+strconv.Itoa(number))
		}
		return strings.Join(ranges(names), " ") + "\n"
	case "repeat":
		return s.repeated(text)
	default:
		require.Fail(s, "no such command", command)
	}
	return result + s.content()
}

// released releases the hold of a number, or any hold.
func (s *scenario) released(number string) string {
	id := ""
	if i, err := strconv.Atoi(number); err == nil {
		id = s.holds[i-1]
	}
	objects, endpoints, err := s.Release(id, "somebody")
	if err != nil {
		text := err.Error()
		for i, id := range s.holds {
			text = strings.ReplaceAll(text, id, fmt.Sprint("hold ", i+1))
		}
		return text + "\n"
	}
	return "released: " + counted(objects, endpoints) + "\n"
}

func counted(objects, endpoints int) string {
	return words.Count(objects, "object", "objects") + ", " + words.Count(endpoints, "endpoint", "endpoints")
}

// repeated runs commands several times. It returns the different answers if they are few, and else the last one.
func (s *scenario) repeated(text string) string {
	rounds, commands, _ := strings.Cut(text, ": ")
	var answers []string
	for _, round := range expanded(rounds) {
		for command := range strings.SplitSeq(strings.ReplaceAll(commands, "#", round), "; ") {
			answer := strings.ReplaceAll(s.answer(command), fmt.Sprint("hold ", len(s.holds)), "hold #")
			if !slices.Contains(answers, answer) {
				answers = append(answers, answer)
			}
		}
	}
	if len(answers) > 4 {
		return s.content()
	}
	return strings.Join(answers, "")
}

// content returns the size of the table, and the hold.
func (s *scenario) content() string {
	total := 0
	for r := range s.table.Snapshot().All() {
		total += endpoints(r)
	}
	require.Equal(s, total, s.counts.endpoints)
	require.LessOrEqual(s, len(s.recent.queue), 2*s.size()+64, "the recorded losses are bounded")
	text := counted(s.size(), total) + "\n"
	status := s.Status()
	if status == nil {
		return text
	}
	if !slices.Contains(s.holds, status.ID) {
		s.holds = append(s.holds, status.ID)
	}
	for _, held := range status.Held {
		total -= held.Endpoints
	}
	require.True(s, status.FurtherLosses > 0 || total+status.Endpoints == s.counts.endpoints, "the sum of the list")
	text += fmt.Sprintf("hold %d for %s", slices.Index(s.holds, status.ID)+1, s.clock.Sub(status.Begun))
	if status.EndTime != nil {
		text += fmt.Sprint(", ends in ", status.EndTime.Sub(s.clock))
	}
	return text + fmt.Sprintf(": %s: %s\n", status.Loss(), status.Why)
}

// served returns the endpoints of s0 in the table.
func (s *scenario) served() (addresses []string) {
	spec, err := s.table.Snapshot().Get(key(0)).Spec()
	require.NoError(s, err)
	for _, e := range spec.(*networking.ServiceEntry).Endpoints {
		addresses = append(addresses, e.Address)
	}
	return addresses
}

func settingsOf(t *testing.T, text string) (settings Settings) {
	t.Helper()
	for field := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "share":
			settings.Share, err = strconv.ParseFloat(value, 64)
		case "min":
			settings.Min = new(int)
			*settings.Min, err = strconv.Atoi(value)
		case "holdFor":
			settings.HoldFor, err = time.ParseDuration(value)
		default:
			settings.Off = name == "off"
		}
		require.NoError(t, err, text)
	}
	return settings
}

func commitOf(t *testing.T, text string, explained bool) Commit {
	t.Helper()
	commit := Commit{RemovalsObserved: explained}
	for change := range strings.FieldsSeq(text) {
		for _, object := range objectsOf(t, change[1:]) {
			switch change[0] {
			case '+':
				commit.Puts = append(commit.Puts, object)
			case '-':
				commit.Deletes = append(commit.Deletes, object.Key())
			case '!':
				commit.Withdrawn = append(commit.Withdrawn, object.Key())
			}
		}
	}
	return commit
}

func objectsOf(t *testing.T, text string) (objects []*resource.Resource) {
	t.Helper()
	text, addresses, isAddressed := strings.Cut(text, "=")
	names, count, _ := strings.Cut(text, "*")
	endpoints, _ := strconv.Atoi(count)
	for _, name := range expanded(names) {
		number, err := strconv.Atoi(name[1:])
		require.NoError(t, err, text)
		switch kind := map[byte]resource.Kind{'a': ap, 'v': vs}[name[0]]; {
		case isAddressed:
			var parts []string
			for part := range strings.SplitSeq(addresses, ",") {
				parts = append(parts, expanded(part)...)
			}
			objects = append(objects, service(key(number), parts...))
		case kind == "":
			objects = append(objects, entry(number, endpoints))
		default:
			key := resource.Key{Kind: kind, Namespace: "shop", Name: fmt.Sprintf("p%04d", number)}
			objects = append(objects, resource.FromBody(resource.Meta{Key: key}, nil))
		}
	}
	return objects
}

var lastNumber = regexp.MustCompile(`^(.*?)(\d+)(?:-(\d+))?$`)

// expanded returns the names of a range such as s0-9.
func expanded(text string) (names []string) {
	parts := lastNumber.FindStringSubmatch(text)
	if parts == nil || parts[3] == "" {
		return []string{text}
	}
	first, _ := strconv.Atoi(parts[2])
	last, _ := strconv.Atoi(parts[3])
	for number := first; number <= last; number++ {
		names = append(names, parts[1]+strconv.Itoa(number))
	}
	return names
}

// ranges joins names to ranges; it is the reverse of expanded.
func ranges(names []string) (texts []string) {
	for len(names) > 0 {
		text, length := names[0], 1
		for last := 1; length < len(names); last++ {
			parts := lastNumber.FindStringSubmatch(names[0])
			first, _ := strconv.Atoi(parts[2])
			if names[length] != parts[1]+strconv.Itoa(first+last) {
				break
			}
			length++
			text = fmt.Sprintf("%s-%d", names[0], first+last)
		}
		texts, names = append(texts, text), names[length:]
	}
	return texts
}
