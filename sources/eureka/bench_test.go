package eureka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
)

// steady is a server with one listing.
type steady struct{ reply *response }

func (s steady) Servers() []string { return []string{"a"} }

func (s steady) Listing(_ context.Context, _ string, previous *response) (*response, error) {
	if s.reply.Sum == previous.Sum {
		return previous, nil
	}
	return s.reply, nil
}

func (s steady) Changes(context.Context, string, *response) (*response, error) {
	return &response{Answer: &wire.Answer{}}, nil
}

// many returns a server with a number of instances, ten of each service.
func many(number int) steady {
	answer := &wire.Answer{}
	for index := range number {
		instance := up(fmt.Sprintf("10.%d.%d.%d", index>>16, index>>8&255, index&255))[0]
		instance.ID = fmt.Sprintf("instance-%d.example.com:orders:%d", index, index)
		instance.App, instance.VIP = fmt.Sprintf("ORDERS-%d", index/10), fmt.Sprintf("orders-%d", index/10)
		answer.Instances = append(answer.Instances, instance)
	}
	return steady{&response{Answer: answer, Sum: [32]byte{1}}}
}

// started returns a run that has read everything.
func started(tb testing.TB, server steady) *state {
	mapper, err := mapping.New(mapping.Options{}, nil)
	require.NoError(tb, err)
	current := begun(newSource(quickly(), server, mapper), newShelf(), time.Now())
	require.Len(tb, current.Poll(tb.Context(), time.Now()).Contents, len(server.reply.Instances)/10)
	return current
}

// BenchmarkPoll measures a poll without the network and the decoding: without a change, and with one.
func BenchmarkPoll(b *testing.B) {
	for _, number := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("nothing/%d", number), func(b *testing.B) {
			current := started(b, many(number))
			for b.Loop() {
				current.Poll(b.Context(), time.Now())
			}
		})
		b.Run(fmt.Sprintf("one/%d", number), func(b *testing.B) {
			server := many(number)
			current := started(b, server)
			for index := 0; b.Loop(); index++ {
				server.reply.Instances[0].Metadata = map[string]string{"version": fmt.Sprint(index)}
				server.reply.Sum = [32]byte{2, byte(index)}
				current.Poll(b.Context(), time.Now())
			}
		})
	}
}
