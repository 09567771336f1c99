// An example: a Temporal server that knows who asks by their client certificate (docs/how-to/temporal-authorizer.md).
//
// Each organizational unit (OU) of a certificate grants one role in one Temporal namespace: "team-a:submitter".
//
//	reader     reads workflows and their histories
//	submitter  reads; starts workloads and graphs; sends them what a person may send
//	worker     reads and writes, and polls: Holdfast's workers alone
//
// "*:admin" may do everything: the server's own workers, and whoever makes namespaces and search attributes.
package main

import (
	"context"
	"flag"
	"log"
	"slices"
	"strings"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/api"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/temporal"
)

// What a submitter may start and send. Workers send each other more: facts about pods, nodes and queues.
var (
	queue   = "holdfast"
	ids     = map[string]string{"Workload": "workload/", "Graph": "graph/"}
	signals = []string{"suspend", "resume", "preempt", "cancel", "retry", "requeue"}
	updates = []string{"update_policy", "update_components", "extend_walltime", "strip_finalizers", "checkpoint", "scale"}
)

var roles = map[string]authorization.Role{
	"reader":    authorization.RoleReader,
	"submitter": authorization.RoleReader | authorization.RoleWriter,
	"worker":    authorization.RoleReader | authorization.RoleWriter | authorization.RoleWorker,
}

type byCertificate struct{}

// GetClaims returns the roles that the subject of a verified certificate grants.
func (byCertificate) GetClaims(asks *authorization.AuthInfo) (*authorization.Claims, error) {
	claims := &authorization.Claims{Namespaces: map[string]authorization.Role{}}
	if asks.TLSSubject == nil {
		return claims, nil
	}
	claims.Subject = asks.TLSSubject.CommonName
	for _, unit := range asks.TLSSubject.OrganizationalUnit {
		namespace, name, _ := strings.Cut(unit, ":")
		if unit == "*:admin" {
			claims.System = authorization.RoleAdmin
		} else if role, known := roles[name]; known && namespace != "*" {
			claims.Namespaces[namespace] |= role
		}
	}
	return claims, nil
}

type byRole struct{}

// Authorize decides about one call. What it does not know, it denies.
func (byRole) Authorize(_ context.Context, who *authorization.Claims, call *authorization.CallTarget) (authorization.Result, error) {
	if authorization.IsHealthCheckAPI(call.APIName) || who != nil && may(who, call) {
		return authorization.Result{Decision: authorization.DecisionAllow}, nil
	}
	return authorization.Result{Decision: authorization.DecisionDeny}, nil
}

func may(who *authorization.Claims, call *authorization.CallTarget) bool {
	if who.System == authorization.RoleAdmin {
		return true
	}
	role, known := who.Namespaces[call.Namespace]
	method := api.GetMethodMetadata(call.APIName)
	switch {
	case !known || method.Scope != api.ScopeNamespace:
		return false
	case method.Access == api.AccessReadOnly:
		return true
	case method.Access != api.AccessWrite:
		return false
	case role&authorization.RoleWorker != 0:
		return true
	case role&authorization.RoleWriter != 0:
		return submits(call.Request)
	}
	return false
}

// submits says whether a request is one that a submitter makes. Polling, and every answer to a task, is not.
func submits(request any) bool {
	switch asked := request.(type) {
	case *workflowservice.StartWorkflowExecutionRequest:
		prefix, known := ids[asked.GetWorkflowType().GetName()]
		return known && strings.HasPrefix(asked.GetWorkflowId(), prefix) && isPlain(asked)
	case *workflowservice.SignalWorkflowExecutionRequest:
		return slices.Contains(signals, asked.GetSignalName()) && isSubmitted(asked.GetWorkflowExecution().GetWorkflowId())
	case *workflowservice.UpdateWorkflowExecutionRequest:
		name := asked.GetRequest().GetInput().GetName()
		return slices.Contains(updates, name) && isSubmitted(asked.GetWorkflowExecution().GetWorkflowId())
	}
	return false
}

// isPlain says whether a start does no more than start: it may not end a workflow that runs, repeat itself, call others
// when it ends, or be served by other workers.
func isPlain(asked *workflowservice.StartWorkflowExecutionRequest) bool {
	return asked.GetWorkflowIdConflictPolicy() != enums.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING &&
		asked.GetWorkflowIdReusePolicy() != enums.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING &&
		asked.GetTaskQueue().GetName() == queue && asked.GetCronSchedule() == "" && asked.GetVersioningOverride() == nil &&
		len(asked.GetCompletionCallbacks()) == 0 && !asked.GetRequestEagerExecution()
}

// isSubmitted says whether an id is that of a workload or graph, and not of what workers start: a watch, a queue.
func isSubmitted(id string) bool {
	for _, prefix := range ids {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

func main() {
	file := flag.String("config-file", "", "the server's configuration")
	flag.Parse()
	configured, err := config.Load(config.WithConfigFile(*file))
	if err != nil {
		log.Fatalf("%s: %v", *file, err)
	}
	server, err := temporal.NewServer(
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithConfig(configured),
		temporal.InterruptOn(temporal.InterruptCh()),
		temporal.WithAuthorizer(byRole{}),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return byCertificate{} }),
	)
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
}
