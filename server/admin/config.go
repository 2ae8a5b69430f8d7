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
	// Reload reads the configuration again, and returns the changes as lines for people. An error means
	// that there are no changes. The caller is for the log.
	Reload(ctx context.Context, caller string) (changes string, err error)
	Status() ConfigStatus
}

// ConfigStatus is the status of the configuration.
type ConfigStatus struct {
	File     string     `json:"file,omitempty"` // empty if flags are the configuration
	Loaded   time.Time  `json:"loaded"`
	Failed   *time.Time `json:"failed,omitempty"`   // when a newer version of the file was refused
	Error    string     `json:"error,omitempty"`    // why it was refused
	Pending  []string   `json:"pending,omitempty"`  // sources that the last reload waits for
	Warnings []string   `json:"warnings,omitempty"` // settings that are probably a mistake, one line each
	Restart  []string   `json:"restart,omitempty"`  // changed settings that need a restart
}

func (s *Server) reload(response http.ResponseWriter, request *http.Request) error {
	changes, err := s.opts.Config.Reload(request.Context(), callerName(request))
	if err != nil {
		return err
	}
	if names := s.awaitSources(request.Context()); len(names) > 0 {
		changes += "\nnot read yet: " + strings.Join(names, ", ") +
			"; a restart would wait for it before anything is served " +
			"(required: false serves the others without it)"
	}
	return reply(response, "%s", changes)
}

// maxSourceWait limits how long the answer to a reload waits for new sources.
const maxSourceWait = time.Second

// awaitSources waits until all required sources were read once, at most for maxSourceWait. It returns the names of
// those that are still unread.
func (s *Server) awaitSources(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, maxSourceWait)
	defer cancel()
	ticker := time.NewTicker(maxSourceWait / 20)
	defer ticker.Stop()
	for {
		unread := s.unreadSources()
		if len(unread) == 0 || ctx.Err() != nil {
			return unread
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// unreadSources returns the names of the required sources that were never read.
func (s *Server) unreadSources() (names []string) {
	merged := s.opts.View.Sources()
	for _, source := range s.opts.Sources.Status() {
		i := slices.IndexFunc(merged, func(current aggregate.SourceStatus) bool {
			return current.Name == source.Name && !current.Retired
		})
		if i < 0 || !merged[i].Synced && !merged[i].Optional {
			names = append(names, source.Name)
		}
	}
	return names
}
