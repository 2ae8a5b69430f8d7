package eureka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
)

// TestScenarios runs the scripts of testdata: a registry lists instances, and a state serves them.
func TestScenarios(t *testing.T) {
	testutil.Scripts(t, "testdata/*.txtar", func(t *testing.T) func(command, want string) string {
		scenario := scenario{T: t, book: newBook(t)}
		return func(command, _ string) string { return scenario.answer(strings.Fields(command)) }
	})
}

// scenario is a state with the services that it published. Each command has a time. An answer has the last digits of
// the served addresses by service, with another port than 80, the number of held endpoints, and the problems of the
// listing. The commands are:
//
//	list TIME INSTANCE…    switched: by another server; outage: after one; partial: it lacks some without a name
//	again TIME             the time passes, with the same listing
//	leave TIME             the server is away
//	restart TIME           the next process, with the published objects and the note
//
// An instance is the last digit of its address, with fields: 1(status=DOWN,id=x). -1@TIME is the end of an instance.
type scenario struct {
	*testing.T
	*book
}

func (s *scenario) answer(words []string) string {
	elapsed := s.duration(words[1])
	now := timeAt(elapsed)
	switch words[0] {
	case "list":
		s.take(s.reading(words[2:]), now)
	case "again":
		s.settle(now)
	case "leave":
		s.Leave(now)
		return ""
	case "restart":
		s.book = s.restarted(now)
		return ""
	default:
		require.Fail(s, "no such command", words[0])
	}
	return s.services(now)
}

func (s *scenario) duration(text string) time.Duration {
	duration, err := time.ParseDuration(text)
	require.NoError(s, err)
	return duration
}

// services describes the state.
func (s *scenario) services(now time.Time) (text string) {
	for _, id := range slices.SortedFunc(maps.Keys(s.published), mapping.ID.Compare) {
		text += strings.ReplaceAll(strings.Join(append([]string{id.VIP + ":"}, s.served(id)...), " "), "10.0.0.", "")
		if id == orders && s.port().Number != 80 {
			text += fmt.Sprint(" at port ", s.port().Number)
		}
		text += "\n"
	}
	if held := s.held(); held > 0 {
		text += fmt.Sprintln("held:", held)
	}
	if next := s.Next(); !next.IsZero() {
		text += fmt.Sprintln("next in", next.Sub(now))
	}
	for _, problem := range s.problems {
		text += problem + "\n"
	}
	return text
}

func (s *scenario) reading(words []string) reading {
	result := listing(nil)
	for _, word := range words {
		ended, isEnd := strings.CutPrefix(word, "-")
		switch {
		case word == "switched":
			switched(&result)
		case word == "outage":
			outage(&result)
		case word == "partial":
			partial(&result)
		case isEnd:
			text, when, _ := strings.Cut(ended, "@")
			instance := s.instance(text)
			instance.Action, instance.Evicted = wire.Deleted, wire.Number(timeAt(s.duration(when)).UnixMilli())
			result.changes = append(result.changes, instance)
		default:
			result.answer.Instances = append(result.answer.Instances, s.instance(word))
		}
	}
	return result
}

func (s *scenario) instance(text string) wire.Instance {
	digits, fields, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	instance := up("10.0.0." + digits)[0]
	for field := range strings.FieldsFuncSeq(fields, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(field, "=")
		var number int
		_, _ = fmt.Sscan(value, &number)
		switch name {
		case "app":
			instance.App = value
		case "id":
			instance.ID = value
		case "vip":
			instance.VIP = value
		case "host":
			instance.IP, instance.HostName = "", value
		case "status":
			instance.Status = value
		case "override":
			instance.Overridden = value
		case "port":
			instance.Port.Number = number
		case "registered":
			instance.Registered = wire.Number(number)
		case "dirty":
			instance.Dirty = wire.Number(number)
		case "servicePort":
			instance.Metadata = map[string]string{"service-port": value}
		case "closed":
			instance.Port.Enabled = false
		case "broken":
			instance.Broken = errors.New("its port is odd")
		default:
			require.Fail(s, "no such field", field)
		}
	}
	return instance
}
