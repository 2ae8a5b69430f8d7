package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"tributary/aggregate"
)

// Config is the configuration that the program runs with.
type Config interface {
	// Reload reads the configuration again and puts it in force, on behalf of somebody. It returns what that changed, in lines for people, or
	// an error, after which everything is as it was.
	Reload(ctx context.Context, by string) (done string, err error)
	Status() ConfigStatus
}

// ConfigStatus says which configuration is in force.
type ConfigStatus struct {
	File   string     `json:"file,omitempty"` // empty if it came from the command line
	Loaded time.Time  `json:"loaded"`
	Failed *time.Time `json:"failed,omitempty"` // when the file was refused since
	Error  string     `json:"error,omitempty"`  // why
	// sources that the last reload waits for; until they are read, what they may have is as it was
	Pending  []string `json:"pending,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // settings that are probably a mistake, one line each
	Restart  []string `json:"restart,omitempty"`  // what of it needs a restart, one setting each
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	done, err := s.opts.Config.Reload(r.Context(), asker(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if names := s.unread(r.Context()); len(names) > 0 {
		done += "\nnot read yet: " + strings.Join(names, ", ") + "; a restart would wait for it before anything is served (required: false " +
			"serves the others without it)"
	}
	reply(w, "%s", done)
}

// unreadAfter is how long the answer to a reload waits for sources to be read.
const unreadAfter = time.Second

// unread returns the names of the required sources that are not read a moment from now.
func (s *Server) unread(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, unreadAfter)
	defer cancel()
	for again := time.NewTicker(unreadAfter / 20); ; {
		names = nil
		merged := s.opts.View.Sources()
		for _, source := range s.opts.Sources.Status() {
			i := slices.IndexFunc(merged, func(m aggregate.SourceStatus) bool { return m.Name == source.Name && !m.Retiring })
			if i < 0 || !merged[i].Synced && !merged[i].Optional {
				names = append(names, source.Name)
			}
		}
		if len(names) == 0 || ctx.Err() != nil {
			return names
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}
