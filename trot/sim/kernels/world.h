// Everything one substep computes about one world (on the CPU: about one block of worlds), grouped by the stage that
// computes it. On CUDA this struct lies in shared memory. All vectors are in world axes, positions and spatial vectors
// relative to `origin`, the current position of the first body, so that a far runner loses no precision.
#pragma once
#include "spatial.h"

constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

// parameters.h reads them.
constexpr int parameter_slots = per_world_parameters ? num_parameters : 1;

// Whether every dof has a lane of its own that goes over the tree with the others (tree_lanes.h, kinematics_lanes.h).
constexpr bool tree_in_lanes = rows_in_lanes && sums_in_lanes;

// On CUDA rows of the mass matrix, and what is kept of a substep, move four numbers at a time.
constexpr int quad_alignment = LANES > 1 ? 16 : alignof(Real);
struct alignas(quad_alignment) Quad { Real number[4]; };

// Kept of every substep for the backward pass (memory.h): the state before it and its acceleration ...
struct alignas(quad_alignment) Substep {
    Real joint_q[num_q];
    Real joint_qd[num_dofs];
    Real joint_qdd[num_dofs];
    Real act[at_least_one(num_acts)];  // activations that are states
};

// ... with store_factor what mass_matrix.h makes of the mass matrix ...
struct alignas(quad_alignment) Factor {
    Real mass_matrix[num_dofs * row_stride];  // with the right-hand side; then its factor
    Real inverse_diagonal[num_dofs];
};

// ... and with store_motion where the bodies are and how they move.
struct alignas(quad_alignment) BodyMotions {
    // kinematics.h
    Vec3 origin;
    Mat3 body_rotation[num_bodies];
    Vec3 body_position[num_bodies];
    Motion joint_axis[num_dofs];  // motion of the body, and of all it carries, per unit of joint_qd
    Inertia body_inertia[num_bodies];

    // velocity.h
    Motion body_velocity[num_bodies];
    Motion joint_axis_rate[num_dofs];
};

struct World : Substep, Factor, BodyMotions {
    // Inputs
    Real control[at_least_one(num_controls)];  // clamped to its range
    Real parameter[parameter_slots];

    // kinematics.h
    Mat3 rotation_in_parent[tree_in_lanes ? 1 : num_bodies];
    Vec3 position_in_parent[tree_in_lanes ? 1 : num_bodies];

    // velocity.h
    Motion body_acceleration[num_bodies];  // gravity included as an upward acceleration of the ground

    // body_force.h, muscle.h
    Force body_force[num_bodies];  // what the joints must supply; after the sweep, to the whole subtree
    Force bundle_force[at_least_one(num_bundles)];  // on the first body of a bundle; on the second it is the opposite

    // tendon.h, hill_muscle.h
    Force piece_wrench[2 * at_least_one(num_pieces)];  // on its two ends, per unit of push along it
    Real piece_length[at_least_one(num_pieces)];
    Real piece_rate[at_least_one(num_pieces)];
    Real hill_push[at_least_one(num_hills)];

    // pair_contact.h
    Vec3 feeler_position[at_least_one(num_feelers)];
    Vec3 feeler_half[at_least_one(num_feelers)];  // from its middle to one end
    Force pair_force[at_least_one(num_pairs)];    // on the pair's first body; on the second it is the opposite
    int pair_touches[at_least_one(num_pairs)];    // in any world; where 0, what is kept of the pair is not written

    // mass_matrix.h
    Inertia composite_inertia[num_bodies];
    Force composite_force[rows_in_lanes ? 1 : num_dofs];

    // servo.h, tie.h: generalised forces on the dof of each drive and strand
    Real drive_force[at_least_one(num_drives)];
    Real strand_force[at_least_one(num_strands)];

    // bond.h. Members that few robots have stand last: one in between costs the others their vector loads.
    Force bond_force[at_least_one(num_bonds)];  // on the bond's first body; on the second it is the opposite
};

// What the backward pass adds. A name ending in _bar is the derivative of the loss with respect to that quantity.
struct Adjoint {
    Real joint_q_bar[num_dofs];  // in tangent coordinates: one number per dof
    Real joint_qd_bar[num_dofs];
    Real joint_force_bar[num_dofs];  // summed over substeps: motors hold still during a control step
    Real tension_bar[at_least_one(num_segments)];  // of each segment, summed over substeps likewise
    Real act_bar[at_least_one(num_acts)];
    Real act_control_bar[at_least_one(num_acts)];    // summed over substeps, as the next
    Real hill_control_bar[at_least_one(num_hills)];  // of muscles whose activation is the control
    Real parameter_bar[parameter_slots];

    Real lambda[num_dofs];              // M^-1 joint_qdd_bar
    Motion body_lambda[num_bodies];     // the motion that joint velocities lambda would give each body
    Force acceleration_bar[num_bodies];  // after the sweep: of the whole subtree, as the next two
    Force velocity_bar[num_bodies];
    Force pose_bar[num_bodies];  // with respect to moving the body by a small Motion
    Force dof_velocity_bar[num_dofs];
    Force dof_pose_bar[num_dofs];
    Force bundle_pose_bar[2 * at_least_one(num_bundles)];
    Real piece_lambda_rate[at_least_one(num_pieces)];
    Real hill_length_bar[at_least_one(num_hills)];
    Real hill_rate_bar[at_least_one(num_hills)];
    Force piece_pose_bar[3 * at_least_one(num_pieces)];
    Force pair_velocity_bar[at_least_one(num_pairs)];  // of the first body; of the second it is the opposite
    Force pair_pose_bar[2 * at_least_one(num_pairs)];
    Real servo_control_bar[at_least_one(num_servos)];
    Real actuator_lambda[num_force_ranges > 0 ? num_dofs : 1];  // lambda where a joint's range does not hold its actuators
    Real drive_q_bar[at_least_one(num_drives)];
    Real drive_qd_bar[at_least_one(num_drives)];
    Real strand_q_bar[at_least_one(num_strands)];
    Real strand_qd_bar[at_least_one(num_strands)];
    Force bond_velocity_bar[at_least_one(num_bonds)];  // of the first body; of the second it is the opposite
    Force bond_pose_bar[2 * at_least_one(num_bonds)];
};
