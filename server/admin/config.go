package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"tributary/aggregate"
)

// Config is the configuration of the program.
type Config interface {
	// Reload reads the configuration again on behalf of a caller. It returns the changes in lines for people, or an error
	// and changes nothing.
	Reload(ctx context.Context, caller string) (changes string, err error)
	Status() ConfigStatus
}

// ConfigStatus is the status of the configuration.
type ConfigStatus struct {
	File     string     `json:"file,omitempty"` // empty for flags
	Loaded   time.Time  `json:"loaded"`
	Failed   *time.Time `json:"failed,omitempty"`   // when the file was refused since
	Error    string     `json:"error,omitempty"`    // the reason
	Pending  []string   `json:"pending,omitempty"`  // sources that the last reload waits for
	Warnings []string   `json:"warnings,omitempty"` // settings that are probably a mistake, one line each
	Restart  []string   `json:"restart,omitempty"`  // changed settings that need a restart
}

func (s *Server) reload(response http.ResponseWriter, request *http.Request) error {
	changes, err := s.opts.Config.Reload(request.Context(), asker(request))
	if err != nil {
		return err
	}
	if names := s.unread(request.Context()); len(names) > 0 {
		changes += "\nnot read yet: " + strings.Join(names, ", ") +
			"; a restart would wait for it before anything is served " +
			"(required: false serves the others without it)"
	}
	return reply(response, "%s", changes)
}

// unreadAfter is the time that an answer to a reload waits for sources.
const unreadAfter = time.Second

// unread returns the required sources without a first read after a moment.
func (s *Server) unread(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, unreadAfter)
	defer cancel()
	for ticker := time.NewTicker(unreadAfter / 20); ; {
		names = nil
		merged := s.opts.View.Sources()
		for _, source := range s.opts.Sources.Status() {
			i := slices.IndexFunc(merged, func(current aggregate.SourceStatus) bool {
				return current.Name == source.Name && !current.Retired
			})
			if i < 0 || !merged[i].Synced && !merged[i].Optional {
				names = append(names, source.Name)
			}
		}
		if len(names) == 0 || ctx.Err() != nil {
			return names
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
