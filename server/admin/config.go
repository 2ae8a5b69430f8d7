package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Config is the configuration that the program runs with.
type Config interface {
	// Reload reads the configuration again and puts it in force, on behalf of somebody. It returns what that changed, in lines for people, or an
	// error, after which everything is as it was.
	Reload(ctx context.Context, by string) (done string, err error)
	Status() ConfigStatus
}

// ConfigStatus says which configuration is in force.
type ConfigStatus struct {
	File     string     `json:"file,omitempty"` // empty if it came from the command line
	Loaded   time.Time  `json:"loaded"`
	Failed   *time.Time `json:"failed,omitempty"`   // when the file was refused since
	Error    string     `json:"error,omitempty"`    // why
	Pending  []string   `json:"pending,omitempty"`  // sources that the last reload waits for; until they are read, what they may have is as it was
	Warnings []string   `json:"warnings,omitempty"` // what is hardly meant, one line each
	Restart  []string   `json:"restart,omitempty"`  // what of it needs a restart, one setting each
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	done, err := s.opts.Config.Reload(r.Context(), asker(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, err = fmt.Fprintln(w, done) //nolint:gosec // it has names of sources, and the text is plain
	s.logWrite(r.URL.Path, err)
}

// upgradeWithin is how long an upgrade may take.
const upgradeWithin = 5 * time.Minute

func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(upgradeWithin)) // where there is none, there is no need
	done, err := s.opts.Upgrade(r.Context(), asker(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, err = io.WriteString(w, done)
	s.logWrite(r.URL.Path, err)
}
