package aws

import (
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
	"time"
)

// profile is an IAM instance profile.
type profile struct {
	Name      string            `json:"name"`
	Path      string            `json:"path"`
	Role      string            `json:"role,omitempty"`
	CreatedAt time.Time         `json:"createdAt"`
	Tags      map[string]string `json:"tags"`
}

type iamTag struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

type roleXML struct {
	ARN     string `xml:"Arn"`
	Created string `xml:"CreateDate"`
	Path    string `xml:"Path"`
	ID      string `xml:"RoleId"`
	Name    string `xml:"RoleName"`
}

type profileXML struct {
	ARN     string    `xml:"Arn"`
	Created string    `xml:"CreateDate"`
	ID      string    `xml:"InstanceProfileId"`
	Name    string    `xml:"InstanceProfileName"`
	Path    string    `xml:"Path"`
	Roles   []roleXML `xml:"Roles>member"`
	Tags    []iamTag  `xml:"Tags>member"`
}

// iamResult is the result of any simulated IAM call; what a call lacks stays nil.
type iamResult struct {
	XMLName   xml.Name
	Profile   *profileXML  `xml:"InstanceProfile"`
	Profiles  []profileXML `xml:"InstanceProfiles>member,omitempty"`
	Role      *roleXML     `xml:"Role"`
	Truncated *bool        `xml:"IsTruncated"`
	Account   string       `xml:"Account,omitempty"`
	ARN       string       `xml:"Arn,omitempty"`
	UserID    string       `xml:"UserId,omitempty"`
}

type queryResponse struct {
	Result    iamResult
	RequestID string `xml:"ResponseMetadata>RequestId"`
}

type queryError struct {
	Type      string `xml:"Error>Type"`
	Code      string `xml:"Error>Code"`
	Message   string `xml:"Error>Message"`
	RequestID string `xml:"RequestId"`
}

var iamOperations = map[string]func(s *Server, p *params) (iamResult, error){
	"GetInstanceProfile":            (*Server).getInstanceProfile,
	"CreateInstanceProfile":         (*Server).createInstanceProfile,
	"DeleteInstanceProfile":         (*Server).deleteInstanceProfile,
	"AddRoleToInstanceProfile":      (*Server).addRole,
	"RemoveRoleFromInstanceProfile": (*Server).removeRole,
	"TagInstanceProfile":            (*Server).tagInstanceProfile,
	"ListInstanceProfiles":          (*Server).listInstanceProfiles,
	"GetRole":                       (*Server).getRole,
}

func (s *Server) dispatchIAM(w http.ResponseWriter, r *http.Request) {
	s.answerQuery(w, r, "https://iam.amazonaws.com/doc/"+iamVersion+"/", iamOperations)
}

func (s *Server) dispatchSTS(w http.ResponseWriter, r *http.Request) {
	s.answerQuery(w, r, "https://sts.amazonaws.com/doc/"+stsVersion+"/", map[string]func(*Server, *params) (iamResult, error){
		"GetCallerIdentity": func(s *Server, _ *params) (iamResult, error) {
			return iamResult{Account: s.opts.AccountID, UserID: "AIDASIMULATED", ARN: "arn:aws:iam::" + s.opts.AccountID + ":user/karpenter"}, nil
		},
	})
}

func (s *Server) answerQuery(w http.ResponseWriter, r *http.Request, xmlns string, operations map[string]func(*Server, *params) (iamResult, error)) {
	name, requestID := r.Form.Get("Action"), s.begin(r.Context())
	var out iamResult
	err := s.count(name)
	run, ok := operations[name]
	if !ok {
		err = s.unknown(name)
	}
	if err == nil {
		err = s.update(func() (failed error) {
			out, failed = run(s, parseParams(r.Form))
			return failed
		})
	}
	if err != nil {
		api := s.failed(err)
		writeXML(w, api.status(), root("ErrorResponse", xmlns), queryError{Type: "Sender", Code: api.Code, Message: api.Message, RequestID: requestID})
		return
	}
	out.XMLName = xml.Name{Local: name + "Result"}
	writeXML(w, http.StatusOK, root(name+"Response", xmlns), queryResponse{Result: out, RequestID: requestID})
}

func (s *Server) role(name string) roleXML {
	return roleXML{ARN: "arn:aws:iam::" + s.opts.AccountID + ":role/" + name, Created: timestamp(s.st.StartedAt), Path: "/",
		ID: "AROA" + strings.ToUpper(hash17(name)), Name: name}
}

func (s *Server) profileXML(p *profile) profileXML {
	out := profileXML{ARN: "arn:aws:iam::" + s.opts.AccountID + ":instance-profile" + p.Path + p.Name, Created: timestamp(p.CreatedAt),
		ID: "AIPA" + strings.ToUpper(hash17(p.Name)), Name: p.Name, Path: p.Path}
	if p.Role != "" {
		out.Roles = []roleXML{s.role(p.Role)}
	}
	for _, t := range tagSet(p.Tags) {
		out.Tags = append(out.Tags, iamTag(t))
	}
	return out
}

func (s *Server) profile(p *params) (*profile, error) {
	name := p.str("InstanceProfileName")
	if found := s.st.Profiles[name]; found != nil {
		return found, nil
	}
	return nil, newError("NoSuchEntity", "Instance Profile %s cannot be found.", name)
}

func (s *Server) getInstanceProfile(p *params) (iamResult, error) {
	found, err := s.profile(p)
	if err != nil {
		return iamResult{}, err
	}
	out := s.profileXML(found)
	return iamResult{Profile: &out}, nil
}

func (s *Server) createInstanceProfile(p *params) (iamResult, error) {
	name, path := p.str("InstanceProfileName"), p.str("Path")
	set(&path, "/")
	if s.st.Profiles[name] != nil {
		return iamResult{}, newError("EntityAlreadyExists", "Instance Profile %s already exists.", name)
	}
	s.st.Profiles[name] = &profile{Name: name, Path: path, CreatedAt: s.opts.Clock.Now(), Tags: p.tags("Tags.member")}
	return s.getInstanceProfile(p)
}

func (s *Server) deleteInstanceProfile(p *params) (iamResult, error) {
	found, err := s.profile(p)
	if err == nil && found.Role != "" {
		err = newError("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	if err == nil {
		delete(s.st.Profiles, found.Name)
	}
	return iamResult{}, err
}

func (s *Server) addRole(p *params) (iamResult, error) {
	found, err := s.profile(p)
	if err == nil && found.Role != "" {
		err = newError("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	if err == nil {
		found.Role = p.str("RoleName")
	}
	return iamResult{}, err
}

func (s *Server) removeRole(p *params) (iamResult, error) {
	found, err := s.profile(p)
	if err == nil && found.Role != p.str("RoleName") {
		err = newError("NoSuchEntity", "The role with name %s cannot be found.", p.str("RoleName"))
	}
	if err == nil {
		found.Role = ""
	}
	return iamResult{}, err
}

func (s *Server) tagInstanceProfile(p *params) (iamResult, error) {
	found, err := s.profile(p)
	if err == nil {
		for k, v := range p.tags("Tags.member") {
			found.Tags[k] = v
		}
	}
	return iamResult{}, err
}

func (s *Server) listInstanceProfiles(p *params) (iamResult, error) {
	prefix, more := p.str("PathPrefix"), false
	out := iamResult{Truncated: &more}
	for _, found := range slices.DeleteFunc(sortedValues(s.st.Profiles), func(f *profile) bool { return !strings.HasPrefix(f.Path, prefix) }) {
		out.Profiles = append(out.Profiles, s.profileXML(found))
	}
	return out, nil
}

// getRole answers that any role exists: which roles an account has is no matter of EC2.
func (s *Server) getRole(p *params) (iamResult, error) {
	out := s.role(p.str("RoleName"))
	return iamResult{Role: &out}, nil
}
